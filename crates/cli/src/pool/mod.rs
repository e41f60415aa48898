//! `fulgurite pool`: makes, inspects, checks and changes pools, and copies them out and in.
//!
//! Every command judges its path and options before it touches anything (exit code 2, one
//! sentence). `info`, `tokens`, `check` and `export` write nothing: they recover the state in DRAM
//! ([`fulgurite_store::Pool::inspect`]). An open pool is locked. A served device's store
//! (`device:SOCKET`) shows its tokens and its state ([`served`]).

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
