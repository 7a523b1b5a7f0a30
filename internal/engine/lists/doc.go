// SPDX-License-Identifier: Apache-2.0

// Package lists handles the live sets of a policy, whose contents are replaced while the policy runs. The content is a fetched list
// (internal/sources/feed), or the addresses of countries or autonomous systems in a database (internal/sources/geo). The package needs the policy,
// the store of copies, and the addresses that this host needs. It returns the content of each set (Screen, Content), the identity of the copy
// (Origin), and the status of all sets (Status). It changes nothing in the kernel: engine/control does.
//
//	change, err := lists.Changed(feed.InState(state), m, false) // m: the manifest of the running policy
//	if len(change.Content) > 0 {                                // also beside an error, which is about other sets
//		program = change.Applied(before)
//	}
package lists
