"""The database: engine, drivers, schema, transactions, migrations and backup."""
