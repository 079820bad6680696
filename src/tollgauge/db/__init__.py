"""The database: engine, drivers, statements, migrations, backup. What the rows mean is store's."""
