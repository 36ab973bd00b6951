"""The connections that agents and workers dial: the only place where frames are read and written."""
