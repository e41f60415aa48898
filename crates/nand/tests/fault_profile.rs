//! Goal: a profile that cannot be used is refused by the name of what is wrong, with what to write
//! instead. The built-in ones can be used.
//! Method: each line of a good profile in turn is left out, given an unknown key, or loses its
//! unit. Impossible geometries and values.

use fulgurite_nand::{Fil, FilConfig, FilError, Profile, ProfileError};

fn good() -> &'static str {
    Profile::built_in_text("mlc").unwrap()
}

/// The message about a profile in which a line is another one.
fn refused(line: &str, by: &str) -> String {
    assert!(good().contains(line), "{line}");
    let text = good().replacen(line, by, 1);
    match Profile::parse(&text) {
        Ok(_) => panic!("{by:?} in place of {line:?} was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_built_in_profiles_can_be_used() {
    for name in Profile::built_in_names() {
        let profile = Profile::built_in(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(profile.geometry.bytes() >= 1 << 30, "{name}");
    }
    let nvmm = Profile::built_in("nvmm").unwrap();
    assert_eq!((nvmm.geometry.bytes(), nvmm.timing.read_ns), (1 << 40, 75_000));
    let error = Profile::built_in("qlc").unwrap_err();
    assert_eq!(error.to_string(), "there is no built-in NAND profile \"qlc\"; there are slc, mlc, tlc, pcm, nvmm");
}

#[test]
fn keys_that_are_unknown_or_missing_are_named() {
    let lines: Vec<&str> = good().lines().filter(|l| l.contains(" = ")).collect();
    assert!(lines.len() > 20);
    for line in lines {
        let key = line.split(" = ").next().unwrap();
        let missing = refused(line, "");
        assert!(missing.contains(&format!("missing field `{key}`")), "{missing}");
        let unknown = refused(line, &format!("{line}\nx_{key} = 1"));
        assert!(unknown.contains(&format!("unknown field `x_{key}`")), "{unknown}");
    }
    let table = refused("[energy]", "[energies]");
    assert!(table.contains("unknown field `energies`"), "{table}");
}

#[test]
fn quantities_without_their_unit_are_refused_with_an_example() {
    for (line, without, says) in [
        ("read = \"50us\"", "read = \"50\"", "\"75us\""),
        ("read = \"50us\"", "read = 50", "\"75us\""),
        ("read = \"50us\"", "read = \"50 parsecs\"", "ns, us, ms, s"),
        ("read = \"50us\"", "read = \"-50us\"", "negative"),
        ("page = \"16K\"", "page = 16384", "\"16K\""),
        ("page = \"16K\"", "page = \"16384\"", "\"16K\""),
        ("bus = \"400MB/s\"", "bus = \"400\"", "\"800MB/s\""),
        ("bus = \"400MB/s\"", "bus = \"0MB/s\"", "\"800MB/s\""),
        ("bus = \"400MB/s\"", "bus = 400", "\"800MB/s\""),
        ("program = \"36uJ\"", "program = \"36\"", "\"30uJ\""),
        ("endurance = \"3000 cycles\"", "endurance = 3000", "\"3000 cycles\""),
        ("endurance = \"3000 cycles\"", "endurance = \"3000\"", "cycles"),
        ("corrects = \"40 bits\"", "corrects = \"40 bytes\"", "\"40 bits\""),
    ] {
        let message = refused(line, without);
        assert!(message.contains(says), "{without}: {message}");
        // And where it is.
        assert!(message.contains("line "), "{message}");
    }
}

#[test]
fn impossible_devices_are_refused_by_name() {
    for (line, by, says) in [
        ("channels = 8", "channels = 0", "[geometry]: channels is 0; write 1 or more"),
        ("pages_per_block = 256", "pages_per_block = 0", "pages_per_block is 0"),
        ("channels = 8", "channels = -1", "invalid value"),
        ("channels = 8", "channels = 4294967296", "invalid value"),
        ("channels = 8", "channels = 1000000", "planes in all are too many"),
        ("blocks_per_plane = 1024", "blocks_per_plane = 4000000000", "16 TiB"),
        (
            "pages_per_block = 256",
            "pages_per_block = 300000000",
            "pages_per_block = 300000000 is too many; write at most 65536",
        ),
        (
            "blocks_per_plane = 1024\npages_per_block = 256",
            "blocks_per_plane = 1000000\npages_per_block = 1",
            "64000000 erase blocks in all are too many; write at most 16777216",
        ),
        ("page = \"16K\"", "page = \"2K\"", "write \"4K\", \"8K\" or \"16K\""),
        ("registers_per_plane = 2", "registers_per_plane = 3", "[geometry] registers_per_plane = 3: write 1 or 2"),
        ("die_queue = 8", "die_queue = 0", "[queues] die_queue = 0: write 1 to 4096"),
        ("spread = 0.1", "spread = -0.1", "[wear] spread = -0.1"),
        ("spread = 0.1", "spread = nan", "[wear] spread = NaN"),
        ("factory_bad = 0.02", "factory_bad = 0.9", "[wear] factory_bad = 0.9"),
        ("endurance = \"3000 cycles\"", "endurance = \"0 cycles\"", "[wear] endurance = 0"),
        ("codeword = \"1K\"", "codeword = \"3K\"", "[ecc] codeword = 3072"),
        ("bit_errors_worn = 1e-3", "bit_errors_worn = 1e-9", "no less than bit_errors_fresh"),
        ("bit_errors_fresh = 1e-7", "bit_errors_fresh = 2.0", "[ecc] bit_errors_fresh = 2"),
        ("cell = \"mlc\"", "cell = \"qlc\"", "unknown variant `qlc`"),
    ] {
        let message = refused(line, by);
        assert!(message.contains(says), "{by}: {message}");
    }
    assert!(matches!(Profile::parse("not TOML at all"), Err(ProfileError::Toml { .. })));
    assert!(matches!(Profile::parse(""), Err(ProfileError::Toml { .. })));
}

/// Sizes at and beyond the limits, where each part alone is no nonsense: an error or a device, and
/// no number that wraps.
#[test]
fn a_device_of_few_and_long_blocks_is_one_or_is_refused() {
    let one = ["channels = 8", "packages_per_channel = 2", "dies_per_package = 2", "planes_per_die = 2"];
    let text = one.iter().fold(good().to_owned(), |text, line| {
        assert!(text.contains(line), "{line}");
        text.replacen(line, &format!("{} = 1", line.split(" = ").next().unwrap()), 1)
    });
    let of = |blocks: u32, pages: u32| {
        let by = [("blocks_per_plane = 1024", blocks), ("pages_per_block = 256", pages)];
        let text = by.iter().fold(text.clone(), |text, (line, count)| {
            text.replacen(line, &format!("{} = {count}", line.split(" = ").next().unwrap()), 1)
        });
        Profile::parse(&text)
    };
    for pages in [65_537, 300_000_000, u32::MAX] {
        assert!(matches!(of(3, pages), Err(ProfileError::Geometry(_))), "{pages}");
    }
    assert!(matches!(of(1_000_000_000, 1), Err(ProfileError::Geometry(_))));
    // Many long blocks of which the log has most: tables of 12 GiB for them.
    let many = Profile::parse(&good().replacen("channels = 8", "channels = 4096", 1).replacen(
        "= 1024\npages_per_block = 256",
        "= 4\npages_per_block = 6000",
        1,
    ));
    assert!(matches!(Fil::new(many.unwrap(), FilConfig::default()), Err(FilError::Log { .. })));
    let longest = of(64, 65_536).unwrap();
    let config = FilConfig::default();
    let fil = Fil::new(longest, config).unwrap();
    assert!(fil.extents() > 0 && fil.flash_pages() <= 64 * 65_536 * 4);
    // What a caller asks of it is added up as well.
    for config in [
        FilConfig { log_blocks: u32::MAX, ..config },
        FilConfig { spare_blocks: u32::MAX, ..config },
        FilConfig { fixed_extents: u32::MAX, ..config },
    ] {
        assert!(matches!(Fil::new(longest, config), Err(FilError::Blocks { .. })), "{config:?}");
    }
}

#[test]
fn layers_that_do_not_fit_a_device_are_refused() {
    let profile = Profile::built_in("mlc").unwrap().scaled(1 << 30, 16).unwrap();
    let refused = |config| Fil::new(profile, config).expect_err("it does not fit");
    let config = FilConfig::default();
    let wide = refused(FilConfig { planes_per_extent: 5, ..config });
    assert_eq!(wide, FilError::Width { width: 5, planes: 16 });
    assert!(matches!(refused(FilConfig { extent_pages: u32::MAX, ..config }), FilError::Extent { .. }));
    assert!(matches!(refused(FilConfig { spare_blocks: 1000, ..config }), FilError::Blocks { .. }));
    assert!(matches!(refused(FilConfig { depth: 0, ..config }), FilError::Depth(0)));
    assert!(wide.to_string().contains("0 for all"));
}
