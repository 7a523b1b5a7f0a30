// Package testutil holds what tests of several packages need: namespaces, devices, packets, databases of countries. It knows no policy:
// test/subject does.
//
//	if !testutil.Inside(t) { // the test runs again, in namespaces of its own
//		return
//	}
//	testutil.Veth(t, "fw0", "out0", "192.0.2.1/24")
//	err := testutil.Send("out0", "udp 198.51.100.7:999 > 192.0.2.1:53", 1)
package testutil
