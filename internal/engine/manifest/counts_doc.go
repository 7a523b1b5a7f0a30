// This file adds up the counters of a policy in XDP and in netfilter, and decides which of them go on when another policy replaces it,
// or when its rules move.

package manifest
