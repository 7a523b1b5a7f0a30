// SPDX-License-Identifier: Apache-2.0

// Package testutil has helpers for tests of several packages: namespaces, devices, packets, databases of countries. Helpers that need policies are in
// test/subject.
//
//	if !testutil.Inside(t) { // the test runs again, in namespaces of its own
//		return
//	}
//	testutil.Veth(t, "fw0", "out0", "192.0.2.1/24")
//	err := testutil.Send("out0", "udp 198.51.100.7:999 > 192.0.2.1:53", 1)
package testutil
