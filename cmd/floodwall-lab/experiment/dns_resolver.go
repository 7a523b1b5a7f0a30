// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// The zone of the resolver: names that clients query, and a name with a large answer.
const (
	zoneName = "bench.example"
	dnsNames = 1000
	bigName  = "big." + zoneName
	bigTexts = 14 // records of 200 bytes: an answer of some 3,000 bytes
)

// Types of queries (RFC 1035, RFC 6891).
const (
	typeA   = 1
	typeOPT = 41
	typeANY = 255
)

// resolverAt is the address and port of the resolver.
var resolverAt = netip.AddrPortFrom(rig.Server4, 53)

// resolverConf has the settings that differ from the defaults. The resolver runs in the foreground, without a directory of its own, and serves
// everybody. Its answers are as long as clients accept, like those of resolvers that are open to abuse. Its socket buffers have the size that
// unbound.conf(5) recommends for busy servers. With the default size, queries are lost after some ten milliseconds without CPU.
const resolverConf = `server:
	interface: %[1]s
	port: %[2]d
	access-control: 0.0.0.0/0 allow
	username: ""
	chroot: ""
	directory: "%[3]s"
	pidfile: ""
	use-syslog: no
	logfile: ""
	do-daemonize: no
	do-ip6: no
	module-config: "iterator"
	so-rcvbuf: 4m
	so-sndbuf: 4m
	edns-buffer-size: 4096
	max-udp-size: 4096
%[4]sauth-zone:
	name: "%[5]s."
	zonefile: "%[3]s/zone"
	for-upstream: yes
	for-downstream: no
	fallback-enabled: no
remote-control:
	control-enable: no
`

// zoneText returns the text of the zone.
func zoneText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ORIGIN %s.\n$TTL 3600\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n", zoneName)
	for i := range dnsNames {
		fmt.Fprintf(&b, "h%d A 192.0.2.%d\n", i, i%256)
	}
	for i := range bigTexts {
		fmt.Fprintf(&b, "big TXT \"%s\"\n", strings.Repeat(string(rune('a'+i)), 200))
	}
	return b.String()
}

// startResolver starts an unbound that resolves names of its own zone in place of names of the Internet. It resolves the first query for a name by
// recursion. It answers further queries from its cache. The parameter more has further lines for the server section of the configuration.
func startResolver(ctx context.Context, h *lab.Host, more string) (*rig.Daemon, error) {
	return rig.StartDaemon(ctx, h, &rig.Place{CPU: rig.ReceiverCPU}, "unbound", func(dir string) ([]string, error) {
		conf := filepath.Join(dir, "unbound.conf")
		text := fmt.Appendf(nil, resolverConf, resolverAt.Addr(), resolverAt.Port(), dir, more, zoneName)
		return []string{"-d", "-p", "-c", conf},
			errors.Join(os.WriteFile(conf, text, 0o600), os.WriteFile(filepath.Join(dir, "zone"), []byte(zoneText()), 0o600))
	}, func() error { return ask(ctx, h, queryFor("h0."+zoneName, typeA)) })
}

// ask sends a query to the resolver from the resolver's host. It returns an error unless an answer arrives soon.
func ask(ctx context.Context, h *lab.Host, query []byte) error {
	conn, err := h.Dial(ctx, "udp", resolverAt)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return err
	}
	if _, err := conn.Write(query); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return err
}

// queryFor returns a query that requests recursion and accepts answers of 4,096 bytes (RFC 1035, 4.1; RFC 6891, 6.1.2).
func queryFor(name string, kind uint16) []byte {
	const recursion, class = 0x0100, 1
	var q []byte
	for _, n := range []uint16{0, recursion, 1, 0, 0, 1} {
		q = binary.BigEndian.AppendUint16(q, n)
	}
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	q = append(q, 0)
	for _, n := range []uint16{kind, class} {
		q = binary.BigEndian.AppendUint16(q, n)
	}
	q = append(q, 0) // the root, which is the name of the OPT record
	for _, n := range []uint16{typeOPT, 4096, 0, 0, 0} {
		q = binary.BigEndian.AppendUint16(q, n)
	}
	return q
}
