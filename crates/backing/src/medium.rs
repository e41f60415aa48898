//! Where the data is stored, and whether a pool keeps it.

use std::path::PathBuf;

use fulgurite_format::Size;

/// Where the data is stored, and whether a pool keeps it. Sizes are numbers of bytes, or text such
/// as `"64M"`.
#[derive(Clone, Debug)]
pub struct Medium {
    pub(crate) kind: MediumKind,
    /// A pool, which outlives the program; otherwise flat, and overwritten.
    pub(crate) kept: bool,
    /// The frames are handed to the device.
    pub(crate) share_frames: bool,
    /// A pool that is created packs objects, and has address space for this number of them.
    pub(crate) objects: u64,
    /// It has no other data, and begins with these bytes.
    pub(crate) alone: Option<&'static [u8]>,
}

/// Where the data is stored.
#[derive(Clone, Debug)]
pub(crate) enum MediumKind {
    Memory {
        size: Size,
    },
    Emulated {
        size: Size,
    },
    File {
        path: PathBuf,
        /// It is created, and has this size.
        create: Option<Size>,
    },
    /// A pool in a file, which is created where nothing is.
    FileOrNew {
        path: PathBuf,
        size: Size,
    },
    Served {
        socket: PathBuf,
    },
}

impl Medium {
    fn of(kind: MediumKind, kept: bool) -> Medium {
        Medium { kind, kept, share_frames: false, objects: 0, alone: None }
    }
    /// A pool that was made before: journaled, with the state of its last token. `path` is its file
    /// or block device. A pool that spans several is opened by any of them and needs all of them.
    /// The others are found in the directory of the one that is named, if they were there, or where
    /// they were last.
    pub fn pool(path: impl Into<PathBuf>) -> Medium {
        Medium::of(MediumKind::File { path: path.into(), create: None }, true)
    }
    /// A pool in a file that is created, of a multiple of 64 KiB, and written once in full. Journal
    /// and reclaim need a part of it: programs get about five sixths of a large one.
    pub fn new_pool(path: impl Into<PathBuf>, size: impl Into<Size>) -> Medium {
        Medium::of(MediumKind::File { path: path.into(), create: Some(size.into()) }, true)
    }
    /// A pool that is opened as by [`Medium::pool`] where there is one. Where nothing is, it is
    /// made as by [`Medium::new_pool`], for which alone `size` counts. Until it is whole, its file
    /// has the name with `.unfinished` behind it. A later start makes it anew if this one is
    /// killed.
    pub fn pool_or_new(path: impl Into<PathBuf>, size: impl Into<Size>) -> Medium {
        Medium::of(MediumKind::FileOrNew { path: path.into(), size: size.into() }, true)
    }
    /// A file that is created, of a multiple of 64 KiB, and written once in full. It keeps nothing.
    pub fn new_file(path: impl Into<PathBuf>, size: impl Into<Size>) -> Medium {
        Medium::of(MediumKind::File { path: path.into(), create: Some(size.into()) }, false)
    }
    /// A file or block device whose contents are overwritten. It keeps nothing.
    pub fn file(path: impl Into<PathBuf>) -> Medium {
        Medium::of(MediumKind::File { path: path.into(), create: None }, false)
    }
    /// A device that a thread on another core plays, with the latencies of flash.
    pub fn emulated(size: impl Into<Size>) -> Medium {
        Medium::of(MediumKind::Emulated { size: size.into() }, false)
    }
    /// Plain memory, for tests.
    pub fn memory(size: impl Into<Size>) -> Medium {
        Medium::of(MediumKind::Memory { size: size.into() }, false)
    }
    /// A device of another process (`fulgurite device serve`), which this program has for itself as
    /// long as it runs, by the socket that it listens at. Its contents are overwritten, and it
    /// keeps nothing. While the device is away, requests wait for at most half a minute. What it
    /// had not flushed is written again when it is back.
    pub fn device(socket: impl Into<PathBuf>) -> Medium {
        Medium::of(MediumKind::Served { socket: socket.into() }, false)
    }
    /// The store of a device of another process (`fulgurite device serve` with `--nand` or
    /// `--store`), which this program has for itself as long as it runs, as a pool: with what is in
    /// it, names, tokens, sync and roll back. The device's firmware runs the store, and this
    /// process none.
    ///
    /// What a sync has named survives a kill of this program, of the device, and of both. All else
    /// is discarded when this program ends, however it ends, because the device rolls back to the
    /// newest token before it admits another program. When the device alone dies, requests wait for
    /// at most half a minute. What was written since the last sync is written again when it is
    /// back, up to 8 MiB of it, or a quarter of the DRAM budget, which pays for these copies. Where
    /// more was written, or pages were deleted or got other permissions since, every request ends
    /// with `Poisoned` instead, and the program is to be started again, at its last sync. Temporary
    /// pages survive when the device alone dies, and are deleted when this program ends.
    ///
    /// Some settings differ from a pool of this process: the device decides how many tokens are
    /// kept, and how long. So `keep_tokens`, `keep_age` and `keep_space` are refused, as is a
    /// durability of `Cache`. Room for a sync is kept in both cases: a program that would change
    /// more between two syncs than the device has room for gets `PoolFull` (with a `Lazy`
    /// durability it waits for the sync, up to two seconds). A device of an older version does not
    /// say what room it has. Then any access that needs a frame may get `PoolFull`, and so may the
    /// sync: the program is to be started again, at its last sync.
    pub fn device_pool(socket: impl Into<PathBuf>) -> Medium {
        Medium::of(MediumKind::Served { socket: socket.into() }, true)
    }
    /// Hands this program's frames to the device of another process, so that nothing is copied. The
    /// program then trusts the device's process with them as it trusts its own, and a request has
    /// no time-out.
    #[must_use]
    pub fn share_frames(mut self, share: bool) -> Medium {
        self.share_frames = share;
        self
    }
    /// Makes a pool one that packs objects, with address space for at least `count` of them in
    /// addition to the address space of other data. Small values are cached and written by their
    /// length there, and not by the subpage. Each takes 4 KiB of address space and 6 bytes of DRAM
    /// for it, cached or not. One that was written takes up to 16 bytes more, as far as the budget
    /// has them. A pool that was made without objects begins to pack them when it is opened with
    /// this setting, and keeps packing them from then on.
    #[must_use]
    pub fn objects(mut self, count: u64) -> Medium {
        self.objects = count;
        self
    }
    /// Makes a pool one that packs objects, like [`Medium::objects`], but that holds nothing else:
    /// it has address space for `count` objects in all. A pool that has more already keeps it. One
    /// that is neither empty nor begins with these bytes stays as it is.
    #[must_use]
    pub fn objects_alone(mut self, count: u64, begins: &'static [u8]) -> Medium {
        (self.objects, self.alone) = (count, Some(begins));
        self
    }
    /// Whether it is a pool, which outlives the program.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept
    }
    /// What its constructor is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (&self.kind, self.kept) {
            (MediumKind::Memory { .. }, _) => "Medium::memory",
            (MediumKind::Emulated { .. }, _) => "Medium::emulated",
            (MediumKind::File { create: None, .. }, false) => "Medium::file",
            (MediumKind::File { create: Some(_), .. }, false) => "Medium::new_file",
            (MediumKind::File { create: None, .. }, true) => "Medium::pool",
            (MediumKind::File { create: Some(_), .. }, true) => "Medium::new_pool",
            (MediumKind::FileOrNew { .. }, _) => "Medium::pool_or_new",
            (MediumKind::Served { .. }, false) => "Medium::device",
            (MediumKind::Served { .. }, true) => "Medium::device_pool",
        }
    }
}
