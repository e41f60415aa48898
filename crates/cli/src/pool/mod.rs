//! `fulgurite pool`: pools made, looked at, checked, changed, copied out and in.
//!
//! Every command judges its path and its options before anything is touched (exit code 2, one sentence). `info`, `tokens`, `check` and
//! `export` write nothing to a pool: they recover its state in DRAM only ([`fulgurite_store::Pool::inspect`]). What runs meanwhile
//! cannot get in between: an open pool is locked. Of the store of a served device (`device:SOCKET`) the tokens can be had, and how it stands
//! ([`served`]).

mod add_member;
pub mod args;
mod change;
mod check;
pub mod create;
mod flat;
mod info;
mod maps;
pub mod open;
mod resize;
mod served;

use anyhow::Result;

use args::PoolCommand;

/// Runs a command.
pub fn run(command: &PoolCommand) -> Result<()> {
    served::refuse(command)?;
    match command {
        PoolCommand::Create(args) => create::run(args),
        PoolCommand::Info(args) => info::info(args),
        PoolCommand::Check(args) => check::run(args),
        PoolCommand::Tokens(args) => info::tokens(args),
        PoolCommand::Pin(args) => change::pin(args, true),
        PoolCommand::Unpin(args) => change::pin(args, false),
        PoolCommand::Rollback(args) => change::roll_back(args),
        PoolCommand::Compact(args) => change::compact(args),
        PoolCommand::Resize(args) => resize::run(args),
        PoolCommand::AddMember(args) => add_member::run(args),
        PoolCommand::Export(args) => flat::export(args),
        PoolCommand::Import(args) => flat::import(args),
    }
}
