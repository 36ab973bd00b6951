"""The PostgreSQL and Valkey that `samovar up` brings along when none is configured, from wheels, without root."""
