"""Alembic's entry point: run the versions on the connection that the store hands over."""

from alembic import context

connection = context.config.attributes["connection"]
if not connection.in_transaction():
    connection.begin()  # Alembic ends only what it began, and the transaction is the store's

context.configure(
    connection=connection,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
