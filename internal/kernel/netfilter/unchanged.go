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
)

// A program that lists rules takes milliseconds to start, and one change of a policy asks dozens of times for the same listing. So a
// listing is kept with the state of the rules that it was made of, and the program runs again when the kernel tells another state. To
// ask the kernel takes microseconds.

// rulesState tells two states of the rules of a network namespace apart. Counters are no part of it, nor are elements of
// sets whose time ends or that packets add.
type rulesState struct {
	namespace uint64            // the cookie of the network namespace, which no other gets until the next boot
	nftables  uint32            // the generation of nftables, which each transaction changes
	tables    [sha256.Size]byte // of the older iptables, without counters
}

// nftState is the state of nftables.
func nftState() (s rulesState, err error) {
	if s.namespace, err = namespaceCookie(); err != nil {
		return s, err
	}
	s.nftables, err = nftGeneration()
	return s, err
}

// tableState is the state of what a family's save prints of tables. nftables is not asked when save is of the older kind: to ask
// loads its modules. A table of the older kind that there is not is not made.
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

// older reports whether save is certainly iptables of the older kind: a link to the one program of that kind.
func (f *family) older() bool {
	path, err := filepath.EvalSymlinks(f.save.path)
	return err == nil && filepath.Base(path) == "xtables-legacy-multi"
}

// namespaceCookie identifies the network namespace of the calling thread.
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

// nftGeneration is the number that nftables counts transactions with (nf_tables_getgen in net/netfilter/nf_tables_api.c).
func nftGeneration() (uint32, error) {
	const id = 1 // NFTA_GEN_ID of uapi/linux/netfilter/nf_tables.h, of 32 bits in network byte order
	messages, err := askNetfilter(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("asking nftables for its generation: %w", err)
	}
	for _, message := range messages {
		if value := message[id]; len(value) == 4 {
			return binary.BigEndian.Uint32(value), nil
		}
	}
	return 0, errors.New("asking nftables for its generation: no answer has it")
}

// askNetfilter sends a message about a family to a subsystem of netfilter, and returns the attributes of each answer.
func askNetfilter(kind, flags int, family uint8, data ...nl.NetlinkRequestData) (answers []netfilterAttributes, err error) {
	request := nl.NewNetlinkRequest(kind, flags)
	request.AddData(netfilterHead{family: family})
	for _, d := range data {
		request.AddData(d)
	}
	messages, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		if len(message) < nl.SizeofNfgenmsg {
			return nil, fmt.Errorf("an answer of %d bytes", len(message))
		}
		answer, err := readAttributes(message[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// netfilterHead is struct nfgenmsg of uapi/linux/netfilter/nfnetlink.h.
type netfilterHead struct {
	family   uint8
	resource uint16
}

// Len is its size in bytes.
func (netfilterHead) Len() int { return nl.SizeofNfgenmsg }

// Serialize writes it as the kernel reads it.
func (h netfilterHead) Serialize() []byte {
	return binary.BigEndian.AppendUint16([]byte{h.family, nl.NFNETLINK_V0}, h.resource)
}

// ipsetNames lists all ipsets. It reads no entries, of which there may be millions.
func ipsetNames() (names []string, err error) {
	const onlyNames = 1 << 1 // IPSET_FLAG_LIST_SETNAME of uapi/linux/netfilter/ipset/ip_set.h
	answers, err := askNetfilter(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, nl.GetIpsetFlags(nl.IPSET_CMD_LIST), unix.NFPROTO_UNSPEC,
		nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)),
		&nl.Uint32Attribute{Type: nl.IPSET_ATTR_FLAGS | unix.NLA_F_NET_BYTEORDER, Value: onlyNames})
	if err != nil {
		return nil, fmt.Errorf("listing ipsets: %w", err)
	}
	for _, answer := range answers {
		if name, ok := answer[nl.IPSET_ATTR_SETNAME]; ok {
			names = append(names, unix.ByteSliceToString(name))
		}
	}
	return names, nil
}

// The older iptables is asked through a raw socket, with options of uapi/linux/netfilter_ipv4/ip_tables.h. Those of IPv6 are the same.
const (
	oldInfo    = 64 // IPT_SO_GET_INFO
	oldEntries = 65 // IPT_SO_GET_ENTRIES
	oldName    = 32 // XT_TABLE_MAXNAMELEN
)

// oldForm is where the older iptables has things in its structures for a version of IP, in bytes.
type oldForm struct {
	family, level int
	next          int // of struct ipt_entry or ip6t_entry: the 16 bits of next_offset
	counters      int // two numbers of 64 bits
}

var oldForms = map[string]oldForm{
	"4": {family: unix.AF_INET, level: unix.IPPROTO_IP, next: 90, counters: 96},
	"6": {family: unix.AF_INET6, level: unix.IPPROTO_IPV6, next: 142, counters: 152},
}

// oldRules are the rules of a table of the older iptables as the kernel has them, with counters of 0.
func oldRules(version, table string) ([]byte, error) {
	form := oldForms[version]
	socket, err := unix.Socket(form.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("reading table %s of IPv%s: %w", table, version, err)
	}
	defer unix.Close(socket)
	const sizeAt = oldName + 4*12 // size of struct ipt_getinfo: behind name, hooks, 2 times 5 offsets and the number of entries
	const entriesAt = oldName + 8 // of struct ipt_get_entries: behind name and size, at a multiple of 8
	for range 10 {                // the size can be another before the entries are read
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

// getOption is getsockopt(2) with a structure that the caller begins and the kernel completes.
func getOption(socket, level, name int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// keptListings is how many listings are kept: a host has few, and tests ask in many network namespaces. After keptFor a program
// runs again all the same: the kernel counts a transaction some instructions before its rules can be listed (nf_tables_commit in
// net/netfilter/nf_tables_api.c), and begins to count anew when its module was unloaded. Of the older iptables, rules that were
// others only while a program read them are the same state.
const (
	keptListings = 32
	keptFor      = 10 * time.Second
)

// listings are the texts that programs printed.
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

// unchanged runs a program that lists rules, or returns what it printed not long ago when the kernel was in the state that it is in.
// Where the kernel does not tell its state, the program runs.
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
	if after, err := state(); err != nil || after != now { // it may have read either
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
