// SPDX-License-Identifier: Apache-2.0

// Package allowlist determines which prefixes no program may ban on this host: prefixes that the policy never bans, and prefixes that the host needs.
// The package bans nothing.
//
//	list := allowlist.Now(never)
//	if why := list.Why(prefix); why != "" { // it is a lifeline, an own address, or in `never`
//		refuse(why)
//	}
package allowlist
