//! A session store: values of any length under numbers, with an index of when each expires.

use std::time::{Duration, SystemTime};

use fulgurite::{Durability, Error, Fulgurite, Medium};

/// Sessions that the store has address space for. Each takes 6 bytes of DRAM, used or not.
const SESSIONS: u64 = 20_000;

pub fn main() -> Result<(), Error> {
    let medium = Medium::pool_or_new("sessions.pool", "64M").objects(SESSIONS);
    let each_second = Durability::each(Duration::from_secs(1));
    let memory = Fulgurite::builder(medium).dram("24M").durability(each_second).start()?;
    let sessions = memory.named("sessions").blobs::<u64>(SESSIONS, "16M")?;
    // In the order in which sessions end. The key is the second with the number of the session.
    let ends = memory.named("ends").b_plus_tree::<u64>("4M")?;
    let key = |end: u64, session: u64| end << 24 | session;

    // A login: both containers change, or neither does.
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is past 1970").as_secs();
    let (session, user_id, user) = (42, 7, b"ada, countess of Lovelace");
    memory.transaction(|t| {
        t.put(&sessions, &session, user)?;
        t.put(&ends, &key(now + 3600, session), &user_id)?;
        Ok::<(), Error>(())
    })?;

    // A request adds to the value.
    memory.run(|m| sessions.append(m, &session, b"; read page 7"))?;
    let mut value = Vec::new();
    assert!(memory.run(|m| sessions.get(m, &session, &mut value))?);
    println!("session {session}: {}", String::from_utf8_lossy(&value));

    // Once a minute: remove what has expired.
    while let Some((first, _)) = memory.run(|m| ends.first_at_or_after(m, 0))? {
        if first >= key(now, 0) {
            break;
        }
        memory.transaction(|t| {
            t.remove(&sessions, &(first & 0xFF_FFFF))?;
            t.remove(&ends, &first)?;
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}
