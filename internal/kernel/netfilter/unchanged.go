// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// A program that lists rules takes milliseconds to start, and one change of a policy needs the same listing dozens of times. So a listing is cached
// together with the state of the rules at that time. The program runs again only when the kernel reports another state. Asking the kernel takes
// microseconds.

// rulesState identifies a state of the rules of a network namespace. It does not cover counters, or elements that expire or that packets add to sets.
type rulesState struct {
	namespace uint64            // the cookie of the network namespace, which is unique until the next boot
	nftables  uint32            // the generation number of nftables, which changes with each transaction
	tables    [sha256.Size]byte // hash of the tables of iptables-legacy, without counters
}

// nftState returns the state of nftables.
func nftState() (s rulesState, err error) {
	if s.namespace, err = namespaceCookie(); err != nil {
		return s, err
	}
	s.nftables, err = nftable.Generation()
	return s, err
}

// tableState returns the state on which the output of a family's save depends. If save is iptables-legacy, tableState does not ask nftables, because
// that would load nftables' modules. It does not create a missing table of iptables-legacy.
func (f *family) tableState(tables []string) (s rulesState, err error) {
	if f.older() {
		s.namespace, err = namespaceCookie()
	} else {
		s, err = nftState()
	}
	if err != nil {
		return s, err
	}
	hash := sha256.New()
	for _, table := range tables {
		there, err := oldTable(f.version, table)
		if err != nil {
			return s, err
		}
		if !there {
			continue
		}
		rules, err := oldRules(f.version, table)
		if err != nil {
			return s, err
		}
		fmt.Fprintf(hash, "%s %d\n", table, len(rules))
		hash.Write(rules)
	}
	hash.Sum(s.tables[:0])
	return s, nil
}

// older reports whether save is certainly iptables-legacy, because it is a link to that program.
func (f *family) older() bool {
	path, err := filepath.EvalSymlinks(f.save.path)
	return err == nil && filepath.Base(path) == "xtables-legacy-multi"
}

// namespaceCookie returns the cookie of the calling thread's network namespace.
func namespaceCookie() (uint64, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the network namespace: %w", err)
	}
	defer unix.Close(socket)
	cookie, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("asking for the network namespace: %w", err)
	}
	return cookie, nil
}

// ipsetNames lists the names of all ipsets. It does not read the entries, of which there may be millions.
func ipsetNames() (names []string, err error) {
	const onlyNames = 1 << 1 // IPSET_FLAG_LIST_SETNAME of uapi/linux/netfilter/ipset/ip_set.h
	answers, err := nftable.Ask(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, nl.GetIpsetFlags(nl.IPSET_CMD_LIST), unix.NFPROTO_UNSPEC,
		nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)),
		&nl.Uint32Attribute{Type: nl.IPSET_ATTR_FLAGS | unix.NLA_F_NET_BYTEORDER, Value: onlyNames})
	if err != nil {
		return nil, fmt.Errorf("listing ipsets: %w", err)
	}
	for _, answer := range answers {
		if name := answer.Text(nl.IPSET_ATTR_SETNAME); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// Constants to read iptables-legacy through a raw socket, from uapi/linux/netfilter_ipv4/ip_tables.h. The constants for IPv6 are the same.
const (
	oldInfo    = 64 // IPT_SO_GET_INFO
	oldEntries = 65 // IPT_SO_GET_ENTRIES
	oldName    = 32 // XT_TABLE_MAXNAMELEN
)

// oldForm has the byte offsets in the structures of iptables-legacy for an IP version.
type oldForm struct {
	family, level int
	next          int // the 16-bit next_offset in struct ipt_entry or ip6t_entry
	counters      int // two numbers of 64 bits
}

var oldForms = map[string]oldForm{
	"4": {family: unix.AF_INET, level: unix.IPPROTO_IP, next: 90, counters: 96},
	"6": {family: unix.AF_INET6, level: unix.IPPROTO_IPV6, next: 142, counters: 152},
}

// oldRules returns the rules of an iptables-legacy table in the kernel's binary form, with all counters set to 0.
func oldRules(version, table string) ([]byte, error) {
	form := oldForms[version]
	socket, err := unix.Socket(form.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("reading table %s of IPv%s: %w", table, version, err)
	}
	defer unix.Close(socket)
	const sizeAt = oldName + 4*12 // size in struct ipt_getinfo: after name, hooks, 2 times 5 offsets and the number of entries
	const entriesAt = oldName + 8 // in struct ipt_get_entries: after name and size, at a multiple of 8
	for range 10 {                // the size can change before the entries are read
		info := make([]byte, sizeAt+4)
		copy(info, table)
		if err = getOption(socket, form.level, oldInfo, info); err != nil {
			break
		}
		size := binary.NativeEndian.Uint32(info[sizeAt:])
		entries := make([]byte, entriesAt+int(size))
		copy(entries, table)
		binary.NativeEndian.PutUint32(entries[oldName:], size)
		if err = getOption(socket, form.level, oldEntries, entries); errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			break
		}
		return form.uncounted(entries[entriesAt:])
	}
	return nil, fmt.Errorf("reading table %s of IPv%s: %w", table, version, err)
}

// uncounted sets the counters of entries to 0.
func (f oldForm) uncounted(entries []byte) ([]byte, error) {
	for at := 0; at < len(entries); {
		entry := entries[at:]
		if len(entry) < f.counters+16 {
			return nil, fmt.Errorf("an entry of %d bytes", len(entry))
		}
		clear(entry[f.counters : f.counters+16])
		next := int(binary.NativeEndian.Uint16(entry[f.next:]))
		if next < f.counters+16 {
			return nil, fmt.Errorf("an entry that is %d bytes long", next)
		}
		at += next
	}
	return entries, nil
}

// getOption calls getsockopt(2) with a structure that the caller has partly filled and the kernel completes.
func getOption(socket, level, name int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// keptListings is the number of cached listings. A host needs few, but tests use many network namespaces. After keptFor a program runs again, also if
// the state is the same, because the state can miss a change in three cases. The kernel counts a transaction some instructions before its rules can
// be listed (nf_tables_commit in net/netfilter/nf_tables_api.c). It restarts the count when its module was unloaded. And rules of iptables-legacy may
// have changed only while a program read them.
const (
	keptListings = 32
	keptFor      = 10 * time.Second
)

// listings are the cached outputs of programs.
var listings struct {
	sync.Mutex
	texts map[listingKey]listing
}

type listingKey struct {
	program   fileIdentity
	arguments string
	namespace uint64
}

type listing struct {
	state rulesState
	read  time.Time
	text  string
}

// unchanged runs a program that lists rules. If the kernel is still in the same state, it returns the program's recent output instead. If the kernel
// does not report its state, it always runs the program.
func (t tool) unchanged(ctx context.Context, state func() (rulesState, error), args ...string) (string, error) {
	now, err := state()
	program, known := identify(t.path)
	if err != nil || !known {
		return t.run(ctx, "", args...)
	}
	key := listingKey{program, strings.Join(args, "\x00"), now.namespace}
	listings.Lock()
	last, ok := listings.texts[key]
	listings.Unlock()
	if ok && last.state == now && time.Since(last.read) < keptFor {
		return last.text, nil
	}
	next := listing{state: now, read: time.Now()}
	if next.text, err = t.run(ctx, "", args...); err != nil {
		return "", err
	}
	if after, err := state(); err != nil || after != now { // the program may have read either state
		return next.text, nil
	}
	listings.Lock()
	defer listings.Unlock()
	if _, there := listings.texts[key]; listings.texts == nil || !there && len(listings.texts) >= keptListings {
		listings.texts = map[listingKey]listing{}
	}
	listings.texts[key] = next
	return next.text, nil
}
