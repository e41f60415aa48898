//! Goal: a memory operation that panics in the device keeps no caller waiting. It is answered, and
//! so is all behind it. The device ends, and no host writes any more to a store in an unknown
//! state.
//! Method: the panic is planted, in a firmware that is turned by hand, in a device of this process,
//! and in one behind a socket with a session. Endless waits are on a thread that the test gives up.

use crate::common;
use crate::hand;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use common::*;
use fulgurite_device::*;
use fulgurite_flash::*;
use fulgurite_format::PoolId;
use fulgurite_store::{Geometry, Pool, StoreConfig};
use fulgurite_sys::Notifier;
use hand::command;

/// Nothing takes so long on any machine.
const FOREVER: Duration = Duration::from_secs(60);
const EIO: FlashError = FlashError::Io(5);
const PAGES: u32 = 1024;

fn formatted() -> Arc<dyn Flash> {
    let medium: Arc<dyn Flash> = Arc::new(MemoryFlash::new(PAGES).unwrap());
    Pool::format(&medium, Geometry::new(PAGES, 32, None).unwrap(), PoolId([5; 16]), 0).unwrap();
    medium
}
fn opened(medium: &Arc<dyn Flash>) -> Layered<Pool> {
    Pool::open(medium.clone(), StoreConfig::default()).unwrap().0.into_flash()
}
/// A device in which this operation panics.
fn device(medium: &Arc<dyn Flash>, panics: Opcode) -> Arc<Device> {
    let firmware = FirmwareConfig { planted: Some(PlantedPanic(panics)), ..FirmwareConfig::default() };
    let config = DeviceConfig { firmware, ..DeviceConfig::default() };
    Arc::new(Device::start_store(opened(medium), config).unwrap())
}
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, reported) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(tell.send(work())));
    match reported.recv_timeout(FOREVER) {
        Ok(done) => {
            thread.join().unwrap();
            done
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} waits for ever"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < FOREVER, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_command_is_answered_once_and_the_firmware_says_that_it_is_over() {
    let store = opened(&formatted());
    let pool = store.layer().clone();
    let wake = Arc::new(Notifier::new().unwrap());
    let config = FirmwareConfig { planted: Some(PlantedPanic(Opcode::Sync)), ..FirmwareConfig::default() };
    let backend = Arc::new(Backend::new(Arc::new(store), config, 1).with_pool(pool));
    let region = Arc::new(Region::create(backend.capability(1, 8, 8), false).unwrap());
    let mut firmware = Firmware::new(backend.clone(), &wake).unwrap();
    firmware.add(backend.open_port(&region, 0, None, &wake, wake.clone()).unwrap());
    let (mut submissions, mut completions) = region.host_ends(0);
    let mut ends = |commands: &[Command]| {
        commands.iter().for_each(|command| submissions.push(command.pack()));
        let (begun, mut found) = (Instant::now(), Vec::new());
        while found.len() < commands.len() {
            assert!(begun.elapsed() < FOREVER, "some are never answered: {found:?}");
            firmware.turn();
            found.extend(std::iter::from_fn(|| completions.pop()).map(|entry| {
                let ended = Ended::unpack(entry.unwrap());
                (ended.id, ended.status)
            }));
        }
        found.sort_by_key(|(id, _)| *id);
        (found, firmware.has_failed())
    };
    let well = [command(0, Opcode::Standing, 0, 1, 0)];
    assert_eq!(ends(&well), (vec![(0, Status::SUCCESS)], false));
    // The one that panics, and some behind it: still to be taken, or too late for that.
    let opcodes = [Opcode::Sync, Opcode::Standing, Opcode::Name, Opcode::MayRollBack];
    let some: Vec<Command> =
        (0..).zip(opcodes).map(|(id, opcode)| command(id, opcode, 0, (opcode == Opcode::Standing).into(), 0)).collect();
    let failed: Vec<(u16, Status)> = (0..4).map(|id| (id, Status::INTERNAL)).collect();
    assert_eq!(ends(&some).0, failed);
    // Also afterwards.
    let begun = Instant::now();
    while !ends(&some[1..]).1 {
        assert!(begun.elapsed() < FOREVER, "the firmware does not notice");
    }
    assert_eq!(ends(&some).0, failed);
    // What has no such operation goes on, until the firmware's owner ends it.
    assert_eq!(ends(&[command(5, Opcode::Read, 0, 1, 0)]).0, [(5, Status::SUCCESS)]);
}

#[test]
fn a_device_in_this_process_ends_and_says_so() {
    let medium = formatted();
    let device = device(&medium, Opcode::RollBack);
    let flash = Arc::new(DeviceFlash::on(device.clone(), HostConfig::default()));
    let frames = arena(2);
    let mut queue = Driver::new(&*flash, &frames, 2);
    fill(&frames, 0, 11);
    queue.one(Op::Write, 3, 0).unwrap();
    let versions = flash.clone();
    let reported = within("a roll back", move || {
        let versions = versions.versions().unwrap();
        let token = versions.name_state().unwrap();
        versions.wait_durable(token).unwrap();
        (token, versions.roll_back(token))
    });
    assert_eq!(reported.1, Err(VersionError::Flash(EIO)));
    until("the device lives on", || device.has_ended());
    // A store that has panicked is over, for present hosts and for one that starts it again.
    assert_eq!(within("a read", move || queue.one(Op::Read, 3, 1)), Err(FlashError::Closed));
    assert!(device.restart().unwrap_err().to_string().contains("start the device again"));
    assert!(device.has_ended());
    drop((flash, device));
    // What is on the medium is whole.
    let flash = DeviceFlash::start_store(opened(&medium), DeviceConfig::default(), HostConfig::default()).unwrap();
    Driver::new(&flash, &frames, 2).one(Op::Read, 3, 1).unwrap();
    assert_eq!((stamp_of(&frames, 1), flash.versions().unwrap().tokens().contains(&reported.0)), (Some(11), true));
}

#[test]
fn what_a_program_had_is_left_as_it_is_and_nobody_is_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("device.sock");
    let medium = formatted();
    let device = device(&medium, Opcode::Tokens);
    let server = Server::start(device.clone(), &socket, ServerConfig::default()).unwrap();
    let frames = arena(2);
    let link = || SocketLink::connect(&socket, false).unwrap();
    let flash = Arc::new(DeviceFlash::over(Arc::new(link().names_states().unwrap()), HostConfig::default()));
    flash.begin().unwrap();
    let mut queue = Driver::new(&*flash, &frames, 2);
    fill(&frames, 0, 11);
    queue.one(Op::Write, 3, 0).unwrap();
    let asks = flash.clone();
    let reported = within("to ask for tokens", move || asks.kept_tokens());
    assert_eq!(reported, Err(VersionError::Flash(EIO)));
    until("the device lives on", || device.has_ended());
    let written = medium.counters().writes;
    within("its end", move || drop((queue, flash)));
    until("a queue pair stays", || server.connections() == 0);
    // Its session has not ended by going back, which writes.
    for link in [link(), link().alone(), link().names_states().unwrap()] {
        let reported = DeviceFlash::over(Arc::new(link), HostConfig::default()).commands(1, 1).unwrap_err();
        assert!(format!("{reported:?}").contains("has panicked"), "{reported:?}");
    }
    assert!(!device.wants_last_flush());
    assert_eq!(medium.counters().writes, written);
}
