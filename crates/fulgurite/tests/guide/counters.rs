//! Counters that several threads change, each change a transaction over two containers.

use fulgurite::{Error, Fulgurite, Medium};

pub fn main() -> Result<(), Error> {
    let medium = Medium::pool_or_new("counters.pool", "64M");
    let memory = Fulgurite::builder(medium).dram("16M").start()?;
    let stock = memory.named("stock").hash_map::<u64, u64>(1000)?;
    let sold = memory.named("sold").hash_map::<u64, u64>(1000)?;
    let total = |article: u64| {
        memory.transaction(|t| {
            let both = (t.get(&stock, &article)?.unwrap_or(0), t.get(&sold, &article)?.unwrap_or(0));
            Ok::<u64, Error>(both.0 + both.1)
        })
    };
    let article = 7;
    memory.run(|m| stock.insert(m, &article, 100))?;
    let before = total(article)?;

    let sell = || {
        // Runs again when another thread changed what it read, so it has no other effects.
        memory.transaction(|t| {
            let left = t.get(&stock, &article)?.unwrap_or(0);
            if left > 0 {
                t.put(&stock, &article, &(left - 1))?;
                let count = t.get(&sold, &article)?.unwrap_or(0);
                t.put(&sold, &article, &(count + 1))?;
            }
            Ok::<bool, Error>(left > 0)
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..40).try_for_each(|_| sell().map(drop)))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;
    assert_eq!(total(article)?, before);
    println!("{} left", memory.run(|m| stock.get(m, &article))?.unwrap_or(0));
    memory.sync()?; // all sales above, or with a kill before this line those up to an earlier state
    Ok(())
}
