//! Changes of a red-black tree, made on copies in DRAM: which links become what. The rules are the
//! textbook's (Cormen, Leiserson, Rivest and Stein, "Introduction to Algorithms", chapter 13). They
//! go by the path from the root instead of parent pointers, so that a rotation touches three nodes
//! and not four.
//!
//! Recolouring may climb the whole path, and at once it would need a pin for each level. So with
//! more than one step, the *topmost* step is an edit of its own: it splits a black node with two
//! red children, or fuses a node with two black ones. That leaves a valid tree with the same
//! entries and a shorter climb. So no edit changes more than [`NODES_MAX`] nodes.

use fulgurite_memory::{AccessError, Address, Memory, Ptr, Region};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Nodes that one edit changes at most, the cell with the root counted as one.
pub(super) const NODES_MAX: u32 = 12;
/// No path is longer: 2 log2(n + 1) for as many nodes as 16 TiB hold is 80.
pub(super) const DEPTH_MAX: usize = 96;

/// Which child.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Side {
    #[default]
    Left,
    Right,
}
impl Side {
    fn other(self) -> Side {
        if self == Side::Left { Side::Right } else { Side::Left }
    }
}

/// The first 16 bytes of a node: its children. The low bit of the left one says that the node is
/// red.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Links {
    left: u64,
    right: u64,
}
impl Links {
    pub(super) fn new(left: Address, right: Address, red: bool) -> Links {
        Links { left: left.bits() | u64::from(red), right: right.bits() }
    }
    #[inline(always)]
    pub(super) fn child(self, side: Side) -> Address {
        Address::from_bits(if side == Side::Left { self.left & !1 } else { self.right })
    }
    pub(super) fn is_red(self) -> bool {
        self.left & 1 != 0
    }
    fn set_child(&mut self, side: Side, child: Address) {
        match side {
            Side::Left => self.left = child.bits() | (self.left & 1),
            Side::Right => self.right = child.bits(),
        }
    }
    fn set_red(&mut self, red: bool) {
        self.left = (self.left & !1) | u64::from(red);
    }
}

/// Where nodes may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) region: Region,
    pub(super) node_bytes: u64,
}
impl Bounds {
    /// The address of a node, if one can be there: a stale pointer must not be followed blindly.
    #[inline(always)]
    pub(super) fn node(&self, at: Address) -> Result<Address, AccessError> {
        if at.bits().is_multiple_of(8) && self.region.contains(at, self.node_bytes) {
            return Ok(at);
        }
        let (what, expected) = ("red-black tree link", self.region.base.bits());
        Err(AccessError::Corrupt { what, at, expected, got: at.bits() })
    }
}

pub(super) fn corrupt(what: &'static str, at: Address) -> AccessError {
    AccessError::Corrupt { what, at, expected: 1, got: 0 }
}

/// The nodes from the root to a place, and which child was taken at each.
#[derive(Debug)]
pub(super) struct Path {
    at: [Address; DEPTH_MAX + 2],
    side: [Side; DEPTH_MAX + 2],
    len: usize,
}
impl Path {
    pub(super) fn new() -> Path {
        Path { at: [Address::NULL; DEPTH_MAX + 2], side: [Side::Left; DEPTH_MAX + 2], len: 0 }
    }
    pub(super) fn push(&mut self, at: Address, side: Side) -> Result<(), AccessError> {
        if self.len == DEPTH_MAX {
            return Err(corrupt("red-black tree depth", at));
        }
        (self.at[self.len], self.side[self.len]) = (at, side);
        self.len += 1;
        Ok(())
    }
}

#[derive(Debug)]
struct Edited {
    at: Address,
    links: Links,
    changed: bool,
}

/// What becomes of the links of some nodes.
#[derive(Debug)]
pub(super) struct Edit {
    bounds: Bounds,
    nodes: Vec<Edited>,
    pub(super) root: Option<Address>,
    /// Whether this is all, or only a step that makes the rest smaller.
    pub(super) complete: bool,
}

impl Edit {
    pub(super) fn new(bounds: Bounds) -> Edit {
        Edit { bounds, nodes: Vec::with_capacity(16), root: None, complete: true }
    }
    /// The nodes whose links change.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Address, Links)> {
        self.nodes.iter().filter(|node| node.changed).map(|node| (node.at, node.links))
    }

    fn index<M: Memory>(&mut self, memory: &mut M, at: Address) -> Result<usize, AccessError> {
        if let Some(index) = self.nodes.iter().position(|node| node.at == at) {
            return Ok(index);
        }
        let links = memory.load(Ptr::<Links>::new(self.bounds.node(at)?))?;
        self.nodes.push(Edited { at, links, changed: false });
        Ok(self.nodes.len() - 1)
    }
    fn links<M: Memory>(&mut self, memory: &mut M, at: Address) -> Result<Links, AccessError> {
        let index = self.index(memory, at)?;
        Ok(self.nodes[index].links)
    }
    fn set<M: Memory>(&mut self, memory: &mut M, at: Address, links: Links) -> Result<(), AccessError> {
        let index = self.index(memory, at)?;
        self.nodes[index].changed |= self.nodes[index].links != links;
        self.nodes[index].links = links;
        Ok(())
    }
    fn child<M: Memory>(&mut self, memory: &mut M, at: Address, side: Side) -> Result<Address, AccessError> {
        Ok(self.links(memory, at)?.child(side))
    }
    fn set_child<M: Memory>(
        &mut self,
        memory: &mut M,
        at: Address,
        side: Side,
        child: Address,
    ) -> Result<(), AccessError> {
        let mut links = self.links(memory, at)?;
        links.set_child(side, child);
        self.set(memory, at, links)
    }
    /// Whether there is a node and it is red.
    fn reads_red<M: Memory>(&mut self, memory: &mut M, at: Address) -> Result<bool, AccessError> {
        Ok(!at.is_null() && self.links(memory, at)?.is_red())
    }
    fn paint<M: Memory>(&mut self, memory: &mut M, at: Address, red: bool) -> Result<(), AccessError> {
        let mut links = self.links(memory, at)?;
        links.set_red(red);
        self.set(memory, at, links)
    }
    /// Hangs `node` where the `index`-th node of the path was.
    fn hang<M: Memory>(&mut self, memory: &mut M, path: &Path, index: usize, node: Address) -> Result<(), AccessError> {
        if index == 0 {
            self.root = Some(node);
            return Ok(());
        }
        self.set_child(memory, path.at[index - 1], path.side[index - 1], node)
    }
    /// Moves `down` one level down on `side`. Its other child takes its place, and the caller links
    /// that.
    fn rotate<M: Memory>(&mut self, memory: &mut M, down: Address, side: Side) -> Result<Address, AccessError> {
        let up = self.child(memory, down, side.other())?;
        let between = self.child(memory, up, side)?;
        self.set_child(memory, down, side.other(), between)?;
        self.set_child(memory, up, side, down)?;
        Ok(up)
    }

    /// Adds the node `new` at the end of the path.
    pub(super) fn insert<M: Memory>(&mut self, memory: &mut M, path: &Path, new: Address) -> Result<(), AccessError> {
        // How far recolouring climbs.
        let (mut at, mut steps) = (path.len, 0);
        while at >= 2 && self.reads_red(memory, path.at[at - 1])? {
            let uncle = self.child(memory, path.at[at - 2], path.side[at - 2].other())?;
            if !self.reads_red(memory, uncle)? {
                break;
            }
            at -= 2;
            steps += 1;
        }
        if steps > 1 {
            self.complete = false;
            self.split(memory, path.at[at])?;
            return self.fix_red(memory, path, path.at[at], at);
        }
        self.nodes.push(Edited { at: new, links: Links::new(Address::NULL, Address::NULL, true), changed: true });
        self.hang(memory, path, path.len, new)?;
        self.fix_red(memory, path, new, path.len)
    }
    /// A black node with two red children becomes red with two black ones.
    fn split<M: Memory>(&mut self, memory: &mut M, node: Address) -> Result<(), AccessError> {
        let links = self.links(memory, node)?;
        self.paint(memory, links.child(Side::Left), false)?;
        self.paint(memory, links.child(Side::Right), false)?;
        self.paint(memory, node, true)
    }
    /// `node`, the `index`-th of the path, has become red: no red node may have a red parent.
    fn fix_red<M: Memory>(
        &mut self,
        memory: &mut M,
        path: &Path,
        mut node: Address,
        mut index: usize,
    ) -> Result<(), AccessError> {
        loop {
            if index == 0 {
                return self.paint(memory, node, false);
            }
            let parent = path.at[index - 1];
            if !self.reads_red(memory, parent)? {
                return Ok(());
            }
            if index == 1 {
                return Err(corrupt("red-black tree with a red root", parent));
            }
            let (grand, side) = (path.at[index - 2], path.side[index - 2]);
            let uncle = self.child(memory, grand, side.other())?;
            if self.reads_red(memory, uncle)? {
                self.split(memory, grand)?;
                (node, index) = (grand, index - 2);
                continue;
            }
            if path.side[index - 1] != side {
                let up = self.rotate(memory, parent, side)?;
                self.set_child(memory, grand, side, up)?;
            }
            let top = self.rotate(memory, grand, side.other())?;
            self.paint(memory, top, false)?;
            self.paint(memory, grand, true)?;
            return self.hang(memory, path, index - 2, top);
        }
    }

    /// Takes the node `gone` at the end of the path out.
    pub(super) fn remove<M: Memory>(
        &mut self,
        memory: &mut M,
        path: &mut Path,
        gone: Address,
    ) -> Result<(), AccessError> {
        let place = path.len;
        let links = self.links(memory, gone)?;
        let (left, right) = (links.child(Side::Left), links.child(Side::Right));
        // The node that leaves its place, and what follows it there: with two children, the next
        // one in order.
        let (mut leaver, mut follower) = (gone, if left.is_null() { right } else { left });
        if !left.is_null() && !right.is_null() {
            path.push(gone, Side::Right)?;
            leaver = right;
            loop {
                let links = self.links(memory, leaver)?;
                if links.child(Side::Left).is_null() {
                    follower = links.child(Side::Right);
                    break;
                }
                path.push(leaver, Side::Left)?;
                leaver = links.child(Side::Left);
            }
        }
        let hole = path.len;
        let leaver_links = self.links(memory, leaver)?;
        let short = !leaver_links.is_red() && !self.reads_red(memory, follower)?;
        if short {
            let steps = self.climb(memory, path, hole)?;
            if steps > 1 {
                self.complete = false;
                let top = (hole - steps).max(1);
                self.paint(memory, path.at[top], true)?;
                return self.fix_short(memory, path, top);
            }
        }
        if leaver == gone {
            self.hang(memory, path, place, follower)?;
        } else {
            if hole > place + 1 {
                self.set_child(memory, path.at[hole - 1], Side::Left, follower)?;
                self.set(memory, leaver, Links::new(left, right, links.is_red()))?;
            } else {
                self.set(memory, leaver, Links::new(left, follower, links.is_red()))?;
            }
            self.hang(memory, path, place, leaver)?;
            path.at[place] = leaver;
        }
        if short {
            return self.fix_short(memory, path, hole);
        }
        if !leaver_links.is_red() {
            self.paint(memory, follower, false)?;
        }
        Ok(())
    }
    /// How many levels recolouring climbs when the paths below the `index`-th place lack a black
    /// node.
    fn climb<M: Memory>(&mut self, memory: &mut M, path: &Path, index: usize) -> Result<usize, AccessError> {
        let mut at = index;
        while at > 0 && !self.reads_red(memory, path.at[at - 1])? {
            let sibling = self.child(memory, path.at[at - 1], path.side[at - 1].other())?;
            if sibling.is_null() {
                return Err(corrupt("red-black tree without a sibling", path.at[at - 1]));
            }
            let links = self.links(memory, sibling)?;
            if links.is_red()
                || self.reads_red(memory, links.child(Side::Left))?
                || self.reads_red(memory, links.child(Side::Right))?
            {
                break;
            }
            at -= 1;
        }
        Ok(index - at)
    }
    /// The paths through the `index`-th place lack a black node.
    fn fix_short<M: Memory>(&mut self, memory: &mut M, path: &mut Path, mut index: usize) -> Result<(), AccessError> {
        while index > 0 {
            let (parent, side) = (path.at[index - 1], path.side[index - 1]);
            let mut sibling = self.child(memory, parent, side.other())?;
            if self.reads_red(memory, sibling)? {
                let top = self.rotate(memory, parent, side)?;
                self.paint(memory, top, false)?;
                self.paint(memory, parent, true)?;
                self.hang(memory, path, index - 1, top)?;
                path.at[index - 1] = top;
                (path.at[index], path.side[index]) = (parent, side);
                index += 1;
                sibling = self.child(memory, parent, side.other())?;
            }
            if sibling.is_null() {
                return Err(corrupt("red-black tree without a sibling", parent));
            }
            let links = self.links(memory, sibling)?;
            let (near, far) = (links.child(side), links.child(side.other()));
            let far_is_red = self.reads_red(memory, far)?;
            if !far_is_red && !self.reads_red(memory, near)? {
                self.paint(memory, sibling, true)?;
                if self.reads_red(memory, parent)? {
                    return self.paint(memory, parent, false);
                }
                index -= 1;
                continue;
            }
            if !far_is_red {
                let up = self.rotate(memory, sibling, side.other())?;
                self.set_child(memory, parent, side.other(), up)?;
            }
            let parent_was_red = self.reads_red(memory, parent)?;
            let top = self.rotate(memory, parent, side)?;
            let far = self.child(memory, top, side.other())?;
            self.paint(memory, top, parent_was_red)?;
            self.paint(memory, parent, false)?;
            self.paint(memory, far, false)?;
            return self.hang(memory, path, index - 1, top);
        }
        Ok(())
    }
}
