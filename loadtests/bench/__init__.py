"""`make bench`: one table, each row beside a control measured in the same run."""
