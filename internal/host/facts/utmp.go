package facts

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// struct utmp of glibc (utmp(5), bits/utmp.h) on 64-bit machines: its size, where the type of a record, the process and the
// address of the remote host stand, and the type of a session.
const (
	utmpSize    = 384
	utmpType    = 0
	utmpProcess = 4
	utmpAddress = 348
	userProcess = 7
)

// utmpSessions are where the sessions in a file of utmp come from that have not ended.
func utmpSessions(file string) (list []netip.Addr) {
	records, _ := os.ReadFile(file)
	for ; len(records) >= utmpSize; records = records[utmpSize:] {
		if binary.NativeEndian.Uint16(records[utmpType:]) != userProcess || !runs(binary.NativeEndian.Uint32(records[utmpProcess:])) {
			continue
		}
		bytes := [16]byte(records[utmpAddress:])
		a := netip.AddrFrom16(bytes)
		if [12]byte(bytes[4:]) == [12]byte{} { // an IPv4 address has the first four alone
			a = netip.AddrFrom4([4]byte(bytes[:4]))
		}
		if !a.IsUnspecified() {
			list = append(list, a)
		}
	}
	return list
}

// runs reports whether there is a process of a number. A record of utmp remains when a machine loses its power.
func runs(process uint32) bool {
	return process > 0 && !errors.Is(unix.Kill(int(process), 0), unix.ESRCH)
}
