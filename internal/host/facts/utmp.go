// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// struct utmp of glibc (utmp(5), bits/utmp.h) on 64-bit machines: its size, the offsets of the record type, the process and the address of the remote
// host, and the record type of a session.
const (
	utmpSize    = 384
	utmpType    = 0
	utmpProcess = 4
	utmpAddress = 348
	userProcess = 7
)

// utmpSessions returns the client addresses of the sessions in a utmp file. It leaves out sessions that have ended.
func utmpSessions(file string) (list []netip.Addr) {
	records, _ := os.ReadFile(file)
	for ; len(records) >= utmpSize; records = records[utmpSize:] {
		if binary.NativeEndian.Uint16(records[utmpType:]) != userProcess || !runs(binary.NativeEndian.Uint32(records[utmpProcess:])) {
			continue
		}
		bytes := [16]byte(records[utmpAddress:])
		a := netip.AddrFrom16(bytes)
		if [12]byte(bytes[4:]) == [12]byte{} { // an IPv4 address uses only the first four bytes
			a = netip.AddrFrom4([4]byte(bytes[:4]))
		}
		if !a.IsUnspecified() {
			list = append(list, a)
		}
	}
	return list
}

// runs reports whether a process exists. After a power failure a utmp record may name a process that no longer exists.
func runs(process uint32) bool {
	return process > 0 && !errors.Is(unix.Kill(int(process), 0), unix.ESRCH)
}
