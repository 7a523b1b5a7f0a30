// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLeaseServers reads lease files in the forms that DHCP clients write. A damaged file must yield no server.
func TestLeaseServers(t *testing.T) {
	dir := t.TempDir()
	message := make([]byte, dhcpCookie, 300)
	message = append(message, 99, 130, 83, 99, 53, 1, 5, 0, 54, 4, 203, 0, 113, 4, 255)
	for name, text := range map[string]string{
		"networkd": "# This is private data. Do not parse.\nADDRESS=192.0.2.9\nNETMASK=255.255.255.0\nROUTER=192.0.2.1\n" +
			"SERVER_ADDRESS=203.0.113.1\nNEXT_SERVER=203.0.113.99\n",
		"dhclient": "lease {\n  interface \"eth0\";\n  option dhcp-server-identifier 203.0.113.98;\n}\n" +
			"lease {\n  option routers 192.0.2.1;\n  option dhcp-server-identifier 203.0.113.2;\n  renew 3 2026/11/25 01:02:03;\n}\n",
		"dhcpcd":  string(message),
		"cut":     string(message[:len(message)-3]),
		"none":    "ADDRESS=192.0.2.9\n",
		"nobody":  "SERVER_ADDRESS=0.0.0.0\n",
		"all":     "SERVER_ADDRESS=255.255.255.255\n",
		"garbage": "SERVER_ADDRESS=1.2.3.400\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := Files{Leases: []string{filepath.Join(dir, "*"), filepath.Join(dir, "none", "*")}}.leaseServers()
	slices.SortFunc(got, netip.Addr.Compare)
	want := []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("203.0.113.4")}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// FuzzPacketServer reads a server from arbitrary bytes in place of a DHCP message.
func FuzzPacketServer(f *testing.F) {
	f.Add(append(make([]byte, dhcpCookie), 99, 130, 83, 99, 54, 4, 203, 0, 113, 4))
	f.Fuzz(func(_ *testing.T, message []byte) { packetServer(message) })
}
