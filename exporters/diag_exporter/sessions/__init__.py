"""Sessions and tenants: whose context is how long, what repeats, what was cached, what was abandoned."""
