//! What goes wrong at the services: no connection left, rows that nobody can publish.

use sqlx::{Postgres, pool::PoolConnection};

use super::{
    Evidence, Ground, Stay,
    database::{connect, within},
};

/// Takes every connection of every service's pool. Writes that are under way keep theirs until they end.
pub(super) async fn starve(ground: Ground<'_, '_>, stay: Stay<'_>) -> Evidence {
    let mut held: Vec<PoolConnection<Postgres>> = Vec::new();
    'taking: for client in ground.clients {
        for _ in 0..client.pool.options().get_max_connections() {
            tokio::select! {
                biased;
                () = stay.over() => break 'taking,
                acquired = client.pool.acquire() => match acquired {
                    Ok(connection) => held.push(connection),
                    // A pool that is that short of connections is starved without us.
                    Err(_) => break,
                },
            }
        }
    }
    let mut pids: Vec<i32> = Vec::new();
    for connection in &mut held {
        if let Ok(pid) =
            within(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut **connection)).await
        {
            pids.push(pid);
        }
    }
    stay.over().await;
    // A session that nobody else used: what it said last is our question.
    let seen = async {
        let mut admin = connect(&ground.world.admin).await?;
        sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1) AND query LIKE '%pg_backend_pid%'",
        )
        .bind(&pids)
        .fetch_one(&mut admin)
        .await
    };
    let seen: Result<i64, _> = within(seen).await;
    let wanted: u32 = ground.clients.iter().map(|client| client.pool.options().get_max_connections()).sum();
    drop(held);
    match seen {
        Ok(seen) => ground.saw(
            seen > 0,
            format!("{seen} of the pools' {wanted} sessions did nothing else until the end of it"),
        ),
        Err(error) => ground.could_not("see the pools' sessions", &error),
    }
}

/// Rows whose routing key is longer than the protocol can carry, at the head of each outbox. No service can enqueue one;
/// an older version of it, or a hand at the table, can.
pub(super) async fn poison(ground: Ground<'_, '_>, events: u32, stay: Stay<'_>) -> Evidence {
    let mut standing = 0_i64;
    let mut poisoned = Vec::new();
    for service in &ground.world.services {
        let put = async {
            let mut connection = connect(&service.database).await?;
            let ids: Vec<uuid::Uuid> = sqlx::query_scalar(
                "INSERT INTO event_outbox (id, payload, enqueued_at) \
                 SELECT gen_random_uuid(), jsonb_build_object('id', gen_random_uuid(), 'event_type', repeat('x', 300), \
                        'occurred_at', '2026-01-01T00:00:00Z', 'data', 0), now() - interval '1 day' \
                   FROM generate_series(1, $1) RETURNING id",
            )
            .bind(i32::try_from(events).unwrap_or(i32::MAX))
            .fetch_all(&mut connection)
            .await?;
            Ok((connection, ids))
        };
        match within(put).await {
            Ok(rows) => poisoned.push(rows),
            Err(error) => return ground.could_not("poison an outbox", &error),
        }
    }
    stay.over().await;
    for (connection, ids) in &mut poisoned {
        let taken_out = sqlx::query_scalar::<_, i64>(
            "WITH taken AS (DELETE FROM event_outbox WHERE id = ANY ($1) RETURNING published_at) \
             SELECT count(*) FROM taken WHERE published_at IS NULL",
        )
        .bind(&*ids)
        .fetch_one(connection);
        match within(taken_out).await {
            Ok(left) => standing += left,
            Err(error) => return ground.could_not("take the poison out", &error),
        }
    }
    let all = i64::from(events) * i64::try_from(poisoned.len()).unwrap_or(i64::MAX);
    ground.saw(standing > 0, format!("{standing} of {all} such rows stood unpublished to the end of it"))
}
