// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFiles reads the addresses in the files of a host. A damaged file, or an expired entry, must yield no address.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	record := func(kind, process int, address ...byte) string {
		r := make([]byte, utmpSize)
		binary.NativeEndian.PutUint16(r[utmpType:], uint16(kind))
		binary.NativeEndian.PutUint32(r[utmpProcess:], uint32(process))
		copy(r[utmpAddress:], address)
		return string(r)
	}
	v6 := netip.MustParseAddr("2001:db8::7").As16()
	write("sessions/1", "# private\nSTATE=active\nREMOTE_HOST=198.51.100.1\n")
	write("sessions/2", "STATE=closing\nREMOTE_HOST=198.51.100.2\n")
	write("sessions/3", "STATE=active\nREMOTE_HOST=a.example\n")
	f := Files{
		Resolvers: []string{write("resolv.conf", "# nameserver 203.0.113.1\nnameserver 203.0.113.2\nnameserver fe80::1%eth0\nnameserver\nnameserver x\n"),
			filepath.Join(dir, "none")},
		Sessions: filepath.Join(dir, "sessions"),
		Users: write("utmp", record(userProcess, os.Getpid(), 198, 51, 100, 3)+record(userProcess, os.Getpid(), v6[:]...)+
			record(8, os.Getpid(), 198, 51, 100, 4)+record(userProcess, 1<<30, 198, 51, 100, 5)+record(userProcess, os.Getpid())+"cut"),
	}
	found, err := f.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		address string
		want    bool
	}{
		{"203.0.113.1", false}, {"203.0.113.2", true}, {"fe80::1", true}, {"198.51.100.1", true}, {"198.51.100.2", false},
		{"198.51.100.3", true}, {"2001:db8::7", true}, {"198.51.100.4", false}, {"198.51.100.5", false}, {"127.0.0.1", true},
	} {
		a := netip.MustParseAddr(test.address)
		if got := slices.Contains(found, netip.PrefixFrom(a, a.BitLen())); got != test.want {
			t.Errorf("%s is found: %t; all that is: %s", a, got, fmt.Sprint(found))
		}
	}
}
