// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"slices"
	"strings"
	"testing"
)

// confirmedPolicy returns a policy that refers to a file of addresses. In the long form it refers to every kind of file: it also uses a file of names
// and a secret. The short form omits DNS and the checks. In an emulated machine, the verifier takes minutes for the program that parses DNS, and half
// a minute for the checks. TestBootFaults in cmd/floodwall tests every kind of file, also in the short form.
func confirmedPolicy() string {
	policy := `devices: [eth0]
default: drop
checks: off
sets:
  blocked: {file: blocked.txt}
  bans: {dynamic: true, max: 1000, timeout: 1h}
  bad: {names: {file: names.txt}}
rules:
  - {name: listed, from: [$blocked, $bans], then: drop}
  - {name: names, dns: {name: $bad}, then: drop}
services:
  - {name: open, port: udp/7000}
  - {name: ssh, port: tcp/22}
  - {name: dns, port: [udp/53, tcp/53], guard: {type: dns, secret: secret.txt}}
`
	if long {
		return policy
	}
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(policy, "\n"), func(line string) bool {
		return strings.Contains(line, "names") || strings.Contains(line, "dns")
	}), "")
}

// confirmedFiles is a script that makes the files of confirmedPolicy in the machine.
const confirmedFiles = `mkdir -p /etc/floodwall && cd /etc/floodwall
echo 203.0.113.7 >blocked.txt
echo evil.example >names.txt
echo 00112233445566778899aabbccddeeff >secret.txt; chmod 600 secret.txt
sync`

// Packets that show whether the confirmed files and the ban are in force. The name in addedPacket was added to names.txt after the confirmation.
const (
	listedPacket = "udp 203.0.113.7:999 > 192.0.2.1:7000"
	namesPacket  = "udp 198.51.100.2:999 > 192.0.2.1:53 dns=A,www.evil.example"
	addedPacket  = "udp 198.51.100.2:999 > 192.0.2.1:53 dns=A,www.added.example"
	bannedPacket = "udp 203.0.113.99:999 > 192.0.2.1:7000"
)

// TestBoot confirms a policy, damages its files, puts another policy on trial, and cuts the power during a third apply. After the boot the confirmed
// policy must be in force before the host has an address. In the long form, another apply then changes units while systemd runs.
func TestBoot(t *testing.T) {
	h := newHost(t, nil)
	h.Must(confirmedFiles)
	h.Write("/etc/floodwall/policy.yaml", confirmedPolicy())
	h.Logf("apply: %s", h.Must("floodwall apply /etc/floodwall/policy.yaml --boot"))
	h.Must("floodwall block 203.0.113.99 --for 1000h")
	h.served()
	h.Must("cd /etc/floodwall; rm blocked.txt; echo added.example >names.txt; printf 0011223344 >secret.txt; sync")
	h.Write("/tmp/trial.yaml", "devices: [eth0]\ndefault: pass\n")
	h.Logf("trial: %s", h.Must("floodwall apply /tmp/trial.yaml --confirm 1h"))
	h.Begin("floodwall", "apply", "/tmp/trial.yaml")
	h.crash()
	h.confirmed("after the power was off during an apply")
	if !long { // the rest takes minutes with an emulated systemd on a busy host
		return
	}
	h.settled()
	// systemd runs while apply installs the units, so apply must make it reload them.
	h.Write("/tmp/next.yaml", "devices: [eth0]\ndefault: pass\n")
	h.Must("floodwall apply /tmp/next.yaml --boot && systemctl is-enabled floodwall-boot.service")
	if got := h.Must("systemctl show --property NeedDaemonReload --value floodwall-boot.service"); strings.TrimSpace(got) != "no" {
		h.Errorf("systemd has not read the units again: %s", got)
	}
}

// confirmed checks that all parts of the confirmed policy are in force.
func (h *host) confirmed(when string) {
	h.Helper()
	h.closed(when)
	if s := h.status(); s.Trial != nil || s.Policy != "/etc/floodwall/policy.yaml" {
		h.Errorf("%s: status %+v, want the confirmed policy", when, s)
	}
	// Each of these packets shows that a set has the confirmed content. The stream of packets tests the services and the default.
	wanted := map[string]string{listedPacket: "drop listed", bannedPacket: "drop listed"}
	if long {
		wanted[namesPacket], wanted[addedPacket] = "drop names", "dns"
	}
	for packet, want := range wanted {
		got := h.explain(packet)
		verdict, reason, _ := strings.Cut(want, " ")
		if !strings.Contains(got, verdict) || !strings.Contains(got, reason) {
			h.Errorf("%s: explain %s: %s, want %s", when, packet, got, want)
		}
	}
	h.Logf("%s: %d packets came to the open port, %d to the closed one", when, h.received(openPort), h.received(closedPort))
}
