//! Types whose values a later run finds again: plain data with a name that outlives the program.

use fulgurite_format::{Address, Plain};

use crate::Ptr;

/// Plain data that a root leads to, or that a container under a root holds.
///
/// The name is the type's identity in the pool. A root is opened only as the type that it was made
/// as, by name, size and alignment. Choose a name with owner and version, and change it with the
/// meaning of the bytes:
/// ```
/// use fulgurite_memory::Stored;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
/// #[stored(name = "shop.Order/1", crate = "fulgurite_memory")]
/// #[repr(C)]
/// struct Order {
///     number: u64,
///     cents: u64,
/// }
/// // A number made of the fields tells two versions under one name apart.
/// assert_eq!(Order::TYPE, "shop.Order/1 470b318d");
/// ```
///
/// Written by hand, it is `impl Stored for Order { const TYPE: &'static str = "shop.Order/1"; }`,
/// and only the name tells versions apart that are of one size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept in a pool under a name",
    label = "not `Stored`",
    note = "a type of your own: add `#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]`, \
            `#[stored(name = \"owner.Name/1\")]` and `#[repr(C)]`",
    note = "a value of changing length, such as a `String` or a `Vec`: `Named::blobs`"
)]
pub trait Stored: Plain {
    /// The type's name.
    const TYPE: &'static str;
    /// The name as roots keep it; of a type that is made of others, with theirs in it.
    #[must_use]
    fn type_name() -> String {
        Self::TYPE.to_owned()
    }
}

macro_rules! named_as_in_rust {
    ($($number:ty)*) => { $(impl Stored for $number { const TYPE: &'static str = stringify!($number); })* };
}
named_as_in_rust!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl Stored for Address {
    const TYPE: &'static str = "address";
}
impl<T: Stored> Stored for Ptr<T> {
    const TYPE: &'static str = "pointer";
    fn type_name() -> String {
        format!("pointer to {}", T::type_name())
    }
}
/// `N` elements of an array.
#[doc(hidden)]
pub struct Elements<const N: usize>;

/// As many as a subpage may have. The size of an array of longer elements is only compared when
/// what uses it is built.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "an array of more than 4096 elements is larger than a subpage, so it cannot be kept in a pool under a \
               name",
    label = "larger than a subpage",
    note = "no access could reach all of it: divide it, or keep its bytes as a blob (`Named::blobs`)"
)]
pub trait InSubpage {}
fulgurite_derive::up_to!(InSubpage, Elements, 4096);

impl<T: Stored, const N: usize> Stored for [T; N]
where
    [T; N]: Plain,
    Elements<N>: InSubpage,
{
    const TYPE: &'static str = "array";
    fn type_name() -> String {
        format!("[{}; {N}]", T::type_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_apart() {
        assert_eq!(<[[u8; 3]; 2]>::type_name(), "[[u8; 3]; 2]");
        assert_eq!(<[Ptr<f64>; 4]>::type_name(), "[pointer to f64; 4]");
    }
}
