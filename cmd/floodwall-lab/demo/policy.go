// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/floodwall/floodwall/internal/model/addrs"
)

// The addresses of the scene. Random sources are in the middle of the unicast space, so that no check regards them as forged. The clients' addresses
// are next to the server's second address, and are not random sources.
var (
	serverAddr     = netip.MustParseAddr("192.0.2.80")
	floodGateway   = netip.MustParseAddr("192.0.2.1")
	clientsGateway = netip.MustParseAddr("20.0.0.2")
	randomSources  = netip.MustParsePrefix("128.0.0.0/2")
)

const (
	webPort       = 80
	floodDevice   = "transit" // the server's device on which the flood arrives
	clientsDevice = "peering" // the server's device on which the clients' packets arrive

	downloadDevice = "download" // the server's device on which a download arrives

	policyFile = "policy.yaml"
	listFile   = "blocked.txt"
	listLength = 10_000 // number of addresses in the generated list
)

// The first lines of the policy. A demonstration judges by the driver's counters, so the program must be at XDP also in a slow flood.
const (
	policyDevices = "devices: [" + floodDevice + ", " + clientsDevice
	policyXDP     = "xdp: always"
)

// policyText is the policy that protects the server. %s is the file of bad addresses.
const policyText = policyDevices + `]
` + policyXDP + `
default: drop
checks: strict
detect: {baseline: learn, quiet: 2s}
sets:
  blocked: {file: %s}
  bans: {dynamic: true, max: 100000, timeout: 1h}
rules:
  - {name: listed, from: [$blocked, $bans], then: drop}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: ssh, port: tcp/22, from: 192.0.2.0/24}
`

// script is the file of the policy, with its text and the bad addresses of its list.
type script struct {
	file   string
	text   string
	listed []netip.Addr // IPv4 addresses, one from each range of the list
}

// writeScript writes the policy to dir. If the options have no list of bad addresses, it also writes a list.
func writeScript(dir string, o Options) (s script, err error) {
	name, list := listFile, o.List
	if list == "" {
		list = filepath.Join(dir, listFile)
		err = os.WriteFile(list, randomList(), 0o600)
	} else {
		name, err = filepath.Abs(list)
	}
	if err != nil {
		return s, fmt.Errorf("list of bad addresses: %w", err)
	}
	if s.listed, err = readListed(list); err != nil {
		return s, err
	}
	s.file, s.text = filepath.Join(dir, policyFile), cmp.Or(o.Policy, fmt.Sprintf(policyText, quoted(name)))
	if err := os.WriteFile(s.file, []byte(s.text), 0o600); err != nil {
		return s, fmt.Errorf("policy: %w", err)
	}
	return s, nil
}

// quoted returns a file name in YAML. The name of the generated list needs no quotes. Any other name may need them.
func quoted(name string) string {
	if name == listFile {
		return name
	}
	return fmt.Sprintf("%q", name)
}

// randomList returns a list of random addresses. The list is always the same.
func randomList() []byte {
	var out bytes.Buffer
	r := rand.New(rand.NewPCG(1, 1))
	for range listLength {
		// 13.0.0.0/8 contains no address of the scene and no random source.
		fmt.Fprintln(&out, netip.AddrFrom4([4]byte{13, byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}))
	}
	return out.Bytes()
}

// readListed reads the addresses of the listed attackers.
func readListed(file string) ([]netip.Addr, error) {
	set, _, err := addrs.ReadFile(file, 0)
	if err != nil {
		return nil, fmt.Errorf("list of bad addresses: %w", err)
	}
	var listed []netip.Addr
	for p := range set.Prefixes() {
		if p.Addr().Is4() {
			listed = append(listed, p.Addr())
		}
	}
	if slices.ContainsFunc([]netip.Addr{serverAddr, floodGateway, clientsGateway}, set.Contains) {
		return nil, &Trouble{fmt.Sprintf("%s: lists addresses of the demonstration's own hosts (%s, %s or %s)", file, serverAddr, floodGateway, clientsGateway), "use another list"}
	}
	if len(listed) < 2 {
		return nil, &Trouble{fmt.Sprintf("%s: holds fewer than two IPv4 addresses", file), "the attackers need some: use a longer list"}
	}
	return listed, nil
}
