//! What templates may ask of the outside world, passed in so that it can be fixed or refused.

use crate::value::Value;

/// Clock, randomness and lookups for template functions.
///
/// All methods but the first two have defaults that give nothing away.
pub trait Host {
    /// The current time as seconds since 1970 and nanoseconds.
    fn now(&mut self) -> (i64, u32);

    /// Fills `bytes` with randomness fit for keys.
    fn random(&mut self, bytes: &mut [u8]);

    /// The object (or list of objects) `lookup` finds in the cluster; an empty map without one.
    fn lookup(
        &mut self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, String> {
        let _ = (api_version, kind, namespace, name);
        Ok(Value::map(Vec::<(&str, Value)>::new()))
    }

    /// The address `getHostByName` gives for a name; empty where name resolution is disabled.
    fn resolve(&mut self, name: &str) -> Result<String, String> {
        let _ = name;
        Ok(String::new())
    }

    /// Whether `required` and `fail` let rendering go on, as when linting.
    fn lint(&self) -> bool {
        false
    }
}

/// A host whose clock stands still and whose randomness is a fixed sequence: for tests and for
/// output that must not change from run to run.
#[derive(Debug, Clone)]
pub struct FixedHost {
    /// The time, as seconds since 1970 and nanoseconds.
    pub now: (i64, u32),
    /// The state of the sequence of random bytes.
    pub seed: u64,
}

impl Default for FixedHost {
    fn default() -> Self {
        Self { now: (1_700_000_000, 0), seed: 1 }
    }
}

impl Host for FixedHost {
    fn now(&mut self) -> (i64, u32) {
        self.now
    }

    fn random(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            // SplitMix64: every state gives a well mixed output.
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.seed;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (mixed ^ (mixed >> 31)) as u8;
        }
    }
}
