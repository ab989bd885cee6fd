//! Whether a session is ours for as long as we hold its connection.

use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

/// Connections that a look opens, one after another.
pub const CONNECTIONS: u32 = 4;

/// A setting that nobody reads but us.
const MARK: &str = "drainer.session";

/// Whether somebody between us and the server hands its sessions round: each of our transactions, and each statement
/// outside one, may get another. PgBouncer does with `pool_mode = transaction` or `statement`.
///
/// A drainer does not work there: its prepared statements are in some session, and a statement that is sent in two
/// messages (as the client library sends every statement with parameters) may reach two sessions, the second of which
/// holds somebody else's. Connect to the server itself, or to a pooler with `pool_mode = session`.
///
/// A look opens [`CONNECTIONS`], so that of up to three poolers behind one address at least one is asked twice; with more
/// it may miss them.
///
/// # Errors
/// When the database can't be reached, or refuses a connection.
pub async fn shares_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let token = uuid::Uuid::new_v4().simple().to_string();
    let mut marked = Vec::new();
    for place in 0..CONNECTIONS {
        let mut connection = PgConnection::connect_with(options).await?;
        // Sent in one message each, so that it works whatever is in between.
        let mark = format!("SELECT set_config('{MARK}', '{token} {place}', false)");
        sqlx::raw_sql(sqlx::AssertSqlSafe(mark)).execute(&mut connection).await?;
        marked.push((place, connection));
    }
    let mut shared = false;
    // The last that was marked is asked first. A pooler that gives what was free last gave one session to all; one that
    // gives what was free longest gives it the session of the first.
    for (place, connection) in marked.iter_mut().rev() {
        // In a transaction a session is held, so that the next is given another.
        shared = match sqlx::raw_sql("BEGIN").execute(&mut *connection).await {
            Ok(_) => mark_of(connection).await? != format!("{token} {place}"),
            // Poolers of statements know no transactions.
            Err(sqlx::Error::Database(_)) => true,
            Err(error) => return Err(error),
        };
        if shared {
            break;
        }
    }
    for (_, mut connection) in marked {
        // They are closed; the answer changes nothing.
        let _ = sqlx::raw_sql("ROLLBACK").execute(&mut connection).await;
        let _ = connection.close().await;
    }
    Ok(shared)
}

async fn mark_of(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let read = sqlx::AssertSqlSafe(format!("SELECT coalesce(current_setting('{MARK}', true), '')"));
    let row = sqlx::raw_sql(read).fetch_one(connection).await?;
    sqlx::Row::try_get(&row, 0)
}
