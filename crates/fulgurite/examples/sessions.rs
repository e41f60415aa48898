//! A session service: values of any length under numbers, changed by several threads, synced each
//! second, and found again by the next run. The pool packs objects, so a session takes as much DRAM
//! as it is long, and not a subpage.
//!
//! ```text
//! cargo run --release -p fulgurite --example sessions                # in a pool that goes away
//! cargo run --release -p fulgurite --example sessions -- my.pool     # run it twice: it goes on
//! ```

use std::path::PathBuf;
use std::time::Duration;

use fulgurite::{Durability, Fulgurite, Medium};

const THREADS: u64 = 4;
const SESSIONS: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temporary = tempfile::tempdir()?;
    let path = std::env::args().nth(1).map_or_else(|| temporary.path().join("sessions.pool"), PathBuf::from);
    // As many as there may ever be: each takes addresses, and 6 bytes of DRAM.
    let medium = Medium::pool_or_new(path, "256M").objects(2 * SESSIONS);
    let durability = Durability::each(Duration::from_secs(1));
    let memory = Fulgurite::builder(medium).dram("32M").durability(durability).start()?;
    let sessions = memory.named("sessions").blobs::<u64>(2 * SESSIONS, 64 << 20)?;

    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (memory, sessions) = (&memory, sessions.clone());
                scope.spawn(move || {
                    memory.run(move |m| {
                        for session in 0..SESSIONS {
                            // All threads change all sessions. None of the visits is lost.
                            sessions.append(m, &session, &[thread as u8; 16])?;
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;

    let (count, longest) = memory.run(move |m| {
        let (mut count, mut longest) = (0, 0);
        sessions.for_each_key(m, |_, len| (count, longest) = (count + 1, longest.max(len)))?;
        Ok((count, longest))
    })?;
    println!("{count} sessions, the longest of {longest} bytes");
    // Its end is a sync, too.
    drop(memory);
    Ok(())
}
