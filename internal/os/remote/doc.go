// SPDX-License-Identifier: Apache-2.0

// Package remote describes failures of remote servers in plain words. Text from a server cannot control a terminal or fill a log. The package sends
// no requests.
//
//	if _, err := http.Get(url); err != nil {
//		fmt.Print(remote.Why(err)) // in plain words, without control characters
//	}
package remote
