//! Counts that threads add to and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }
    /// Raises it to a value that is larger.
    #[inline]
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }
    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a structure of numbers, and one of [`Counter`]s with the same fields that reads them.
#[macro_export]
macro_rules! counters {
    (
        $(#[$of_values:meta])*
        pub $values:ident, $visible:vis $counters:ident {
            $($(#[$of_field:meta])* $field:ident,)*
        }
    ) => {
        $(#[$of_values])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct $values {
            $($(#[$of_field])* pub $field: u64,)*
        }

        /// Counts as it happens.
        #[derive(Debug, Default)]
        $visible struct $counters {
            $($visible $field: $crate::Counter,)*
        }

        impl $counters {
            $visible fn read(&self) -> $values {
                $values { $($field: self.$field.get(),)* }
            }
        }
    };
}
