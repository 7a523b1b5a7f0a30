// This file adds up the counters of a policy in XDP and in netfilter. It also determines which counts continue when another policy replaces this one,
// or when rules move.

package manifest
