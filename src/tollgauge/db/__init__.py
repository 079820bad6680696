"""The database: engine, drivers, schema, transactions and backup."""
