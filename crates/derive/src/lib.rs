//! `#[derive(Stored)]`: the name and the size of a record that a pool keeps.
//!
//! The name of the derived type ends in a number made of its fields' names and types, in their
//! order. So two versions of a record under one name are distinguished, and a pool of the other one
//! is refused instead of misread. The size is compared with a subpage when the type is compiled,
//! also by `cargo check`.
//!
//! What this crate does not do: it derives none of zerocopy's traits, which say that any bytes are
//! a value.
#![forbid(unsafe_code)]

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Path, parse_quote};

/// Derives `fulgurite::Stored`.
///
/// `#[stored(name = "owner.Name/1")]` names the type in pools: 1 to 100 bytes, with an owner and a
/// version. `crate = "path"` says where `Stored` is, if not at `::fulgurite`.
///
/// ```ignore
/// use fulgurite::Stored;
/// use fulgurite::zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, Stored)]
/// #[zerocopy(crate = "fulgurite::zerocopy")]
/// #[stored(name = "shop.Order/1")]
/// #[repr(C)]
/// struct Order {
///     number: u64,
///     cents: u64,
/// }
/// ```
#[proc_macro_derive(Stored, attributes(stored))]
pub fn stored(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// `up_to!(Trait, Type, 4096)` implements a trait for `Type<0>` to `Type<4096>`. Stable Rust has no
/// other way to bound a number in a type so that `cargo check` sees it.
#[doc(hidden)]
#[proc_macro]
pub fn up_to(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let of = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
    let words = syn::parse_macro_input!(input with of);
    implementations(&words.iter().collect::<Vec<_>>()).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn implementations(words: &[&syn::Expr]) -> syn::Result<TokenStream> {
    let wrong = || Error::new(Span::call_site(), "`up_to!(Trait, Type, 4096)`");
    let [implemented, of, limit] = words else { return Err(wrong()) };
    let syn::Expr::Lit(limit) = limit else { return Err(wrong()) };
    let syn::Lit::Int(limit) = &limit.lit else { return Err(wrong()) };
    let numbers = (0..=limit.base10_parse::<usize>()?).map(Literal::usize_unsuffixed);
    Ok(numbers.map(|number| quote! { impl #implemented for #of<#number> {} }).collect())
}

/// What `#[stored(..)]` says.
struct StoredOptions {
    name: LitStr,
    at: Path,
}

fn stored_options(input: &DeriveInput) -> syn::Result<StoredOptions> {
    let (mut name, mut at) = (None::<LitStr>, parse_quote!(::fulgurite));
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("stored")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("crate") {
                at = meta.value()?.parse::<LitStr>()?.parse()?;
            } else {
                return Err(meta.error("`name` and `crate` are what there is to say"));
            }
            Ok(())
        })?;
    }
    let missing = "a name for pools is missing: `#[stored(name = \"owner.Name/1\")]`";
    let name = name.ok_or_else(|| Error::new_spanned(&input.ident, missing))?;
    if !(1..=100).contains(&name.value().len()) {
        return Err(Error::new(name.span(), "a name has 1 to 100 bytes"));
    }
    Ok(StoredOptions { name, at })
}

/// The fields' names and types, in their order: what a version of a record is.
fn fields_of(input: &DeriveInput) -> syn::Result<String> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "only a struct is a record: an enum's bytes are not all values"));
    };
    if let Some(generic) = input.generics.params.first() {
        return Err(Error::new_spanned(generic, "a record of a pool has one layout, and no parameters"));
    }
    let fields: Vec<String> = match &data.fields {
        Fields::Unit => Vec::new(),
        fields => fields
            .iter()
            .map(|field| {
                let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                // Tokens, so that spaces and comments change nothing.
                let tokens: Vec<String> = field.ty.to_token_stream().into_iter().map(|t| t.to_string()).collect();
                format!("{name}: {}", tokens.concat().replace(' ', ""))
            })
            .collect(),
    };
    Ok(fields.join(", "))
}

/// FNV-1a, 32 bits (Fowler, Noll, Vo): the same in every version of this crate, because pools keep
/// it.
fn number_of(text: &str) -> u32 {
    text.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let StoredOptions { name, at } = stored_options(input)?;
    let version = format!("{} {:08x}", name.value(), number_of(&fields_of(input)?));
    let ident = &input.ident;
    let too_large = format!(
        "`{ident}` is larger than a subpage of 4096 bytes, so no access could reach all of it; divide it, or keep its \
         bytes as a blob (`Named::blobs`)"
    );
    Ok(quote! {
        impl #at::Stored for #ident {
            const TYPE: &'static str = #version;
        }
        const _: () = assert!(::core::mem::size_of::<#ident>() <= 4096, #too_large);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(text: &str) -> Result<String, String> {
        let input: DeriveInput = syn::parse_str(text).unwrap();
        derive(&input).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_name_tells_versions_apart_and_spaces_do_not() {
        let name = |fields: &str| derived(&format!("#[stored(name = \"shop.Order/1\")] struct Order {{ {fields} }}"));
        let first = name("number: u64, cents: u64").unwrap();
        // Pools keep this one.
        assert!(first.contains("\"shop.Order/1 470b318d\""), "{first}");
        assert_eq!(name("number:u64,  cents: u64,").unwrap(), first);
        for other in ["cents: u64, number: u64", "number: u64, cents: i64", "number: u64", "n: u64, cents: u64"] {
            assert_ne!(name(other).unwrap(), first, "{other}");
        }
        assert_eq!(name("path: [ u8 ; 4 ]").unwrap(), name("path: [u8; 4]").unwrap());
    }
    #[test]
    fn each_number_up_to_the_limit_has_the_trait() {
        let of = |text: &[&str]| {
            let words: Vec<syn::Expr> = text.iter().map(|word| syn::parse_str(word).unwrap()).collect();
            implementations(&words.iter().collect::<Vec<_>>()).map(|tokens| tokens.to_string())
        };
        let two = of(&["A", "B", "1"]).unwrap();
        assert_eq!(two, "impl A for B < 0 > { } impl A for B < 1 > { }");
        assert_eq!(of(&["A", "B", "4096"]).unwrap().matches("impl").count(), 4097);
        assert!(of(&["A", "B"]).is_err() && of(&["A", "B", "c"]).is_err() && of(&["A", "B", "\"c\""]).is_err());
    }
    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| derived(text).unwrap_err();
        assert!(said("struct Order { number: u64 }").contains("#[stored(name = \"owner.Name/1\")]"));
        assert!(said("#[stored(name = \"\")] struct Order { number: u64 }").contains("1 to 100 bytes"));
        assert!(said("#[stored(nam = \"a\")] struct Order { number: u64 }").contains("`name` and `crate`"));
        assert!(said("#[stored(name = \"a\")] enum Order { New }").contains("only a struct"));
        assert!(said("#[stored(name = \"a\")] struct Order<T>(T);").contains("no parameters"));
        let elsewhere = derived("#[stored(name = \"a\", crate = \"a::b\")] struct Order(u64);").unwrap();
        assert!(elsewhere.contains("impl a :: b :: Stored for Order"), "{elsewhere}");
    }
}
