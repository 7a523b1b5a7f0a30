// SPDX-License-Identifier: Apache-2.0

package guest

import "strings"

// routerPolicy protects a server behind the machine (mode router). In this mode, XDP looks up connections in conntrack.
const routerPolicy = `default: drop
services:
  - {name: far, port: tcp/8080, syn: {when: always, mode: router, mss: 1460, wscale: 7}}
  - {name: open, port: udp/7000}
`

// conntrack applies policies while the module nf_conntrack is not loaded. An apply makes the kernel load the module. If that fails, the error must name
// the cause and the remedy.
func (s *scene) conntrack() {
	loaded := func() bool {
		return strings.Contains("\n"+s.machine.Must("cat /proc/modules"), "\nnf_conntrack ")
	}
	if loaded() {
		s.Fatal("nf_conntrack is loaded: the test shows nothing")
	}
	file := strings.TrimSpace(s.machine.Must("find /lib/modules -name nf_conntrack.ko"))
	s.machine.Must("mv " + file + " /tmp/")
	out, code := s.apply(routerPolicy, "--target", "xdp")
	for _, want := range []string{"the module nf_conntrack is not loaded", "does not have it", "floodwall: hint: install all modules"} {
		if code != 1 || !strings.Contains(out, want) {
			s.Errorf("mode router without the module: exit code %d, want 1 and %q: %s", code, want, out)
		}
	}
	// The XDP program of mode host needs no module. But the nftables rule that exempts the service from conntrack needs nf_conntrack.
	if out, code := s.apply(replyPolicy, "--target", "xdp"); code != 1 || strings.Contains(out, "func") || !strings.Contains(out, "notrack") {
		s.Errorf("mode host without the module: exit code %d: %s", code, out)
	}
	s.machine.Must("mv /tmp/nf_conntrack.ko " + file)
	if out, code := s.apply(routerPolicy, "--target", "xdp"); code != 0 || !loaded() {
		s.Errorf("mode router: exit code %d: %s", code, out)
	}
	s.machine.Must("floodwall unload")
}
