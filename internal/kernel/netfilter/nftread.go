package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What changes a generation, and what removes it, asks the kernel itself by netlink. The program nft takes milliseconds for each
// question, and where it is broken or missing, tables of this package would be neither found nor removed.

// nftFamilies are the families of a generation's tables, by nft's words.
var nftFamilies = map[string]uint8{"inet": unix.NFPROTO_INET, "netdev": unix.NFPROTO_NETDEV}

// netfilterAttributes are the values of attributes by their types.
type netfilterAttributes map[uint16][]byte

func (a netfilterAttributes) text(kind uint16) string { return unix.ByteSliceToString(a[kind]) }

// number is a number in network byte order, of 32 or 64 bits; 0 when there is none.
func (a netfilterAttributes) number(kind uint16) uint64 {
	switch b := a[kind]; len(b) {
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// nested are the attributes in the value of one.
func (a netfilterAttributes) nested(kind uint16) netfilterAttributes {
	list, err := readAttributes(a[kind])
	if err != nil {
		return nil
	}
	return list
}

func readAttributes(b []byte) (netfilterAttributes, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	values := netfilterAttributes{}
	for _, a := range list {
		values[a.Attr.Type&attributeType] = a.Value
	}
	return values, nil
}

// dumpNft lists what nftables has of a kind in a family. A kernel without nftables has nothing; nor has a table that is not there.
func dumpNft(message int, family uint8, data ...nl.NetlinkRequestData) (list []netfilterAttributes, err error) {
	const tries = 10
	for range tries {
		list, err = askNetfilter(unix.NFNL_SUBSYS_NFTABLES<<8|message, unix.NLM_F_DUMP, family, data...)
		if !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) { // something changed meanwhile
			break
		}
	}
	for _, none := range []error{unix.ENOENT, unix.EINVAL, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, none) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for nftables: %w", err)
	}
	return list, nil
}

func textAttribute(kind int, text string) *nl.RtAttr {
	return nl.NewRtAttr(kind, nl.ZeroTerminated(text))
}

// nftTables are the names of the tables of a family.
func nftTables(family string) (names []string, err error) {
	list, err := dumpNft(unix.NFT_MSG_GETTABLE, nftFamilies[family])
	for _, a := range list {
		names = append(names, a.text(unix.NFTA_TABLE_NAME))
	}
	return names, err
}

// nftSets are the names of the sets of a table of family inet.
func nftSets(table string) (names map[string]bool, err error) {
	list, err := dumpNft(unix.NFT_MSG_GETSET, unix.NFPROTO_INET, textAttribute(unix.NFTA_SET_TABLE, table))
	names = map[string]bool{}
	for _, a := range list {
		if a.text(unix.NFTA_SET_TABLE) == table {
			names[a.text(unix.NFTA_SET_NAME)] = true
		}
	}
	return names, err
}

// nftBaseChains are the base chains of a table.
func nftBaseChains(family, table string) (names []string, err error) {
	list, err := dumpNft(unix.NFT_MSG_GETCHAIN, nftFamilies[family])
	for _, a := range list {
		if a.text(unix.NFTA_CHAIN_TABLE) == table && a[unix.NFTA_CHAIN_HOOK] != nil {
			names = append(names, a.text(unix.NFTA_CHAIN_NAME))
		}
	}
	return names, err
}

// nftRemarks are the rules of a table that have a comment.
func nftRemarks(family, table, comment string) (rules []nftRule, err error) {
	const remark = 0 // NFTNL_UDATA_RULE_COMMENT of libnftnl's udata.h: a byte of type, one of length, and a text that ends with 0
	list, err := dumpNft(unix.NFT_MSG_GETRULE, nftFamilies[family], textAttribute(unix.NFTA_RULE_TABLE, table))
	for _, a := range list {
		data := a[unix.NFTA_RULE_USERDATA]
		for len(data) >= 2 && len(data) >= 2+int(data[1]) {
			value := data[2 : 2+int(data[1])]
			if data[0] == remark && unix.ByteSliceToString(value) == comment && a.text(unix.NFTA_RULE_TABLE) == table {
				rules = append(rules, nftRule{family, table, a.text(unix.NFTA_RULE_CHAIN), a.number(unix.NFTA_RULE_HANDLE)})
			}
			data = data[2+len(value):]
		}
	}
	return rules, err
}

// nftRule is a rule by what names it.
type nftRule struct {
	family, table, chain string
	handle               uint64
}

// nftLeft is how long the elements of a set of family inet will be there, the one that goes first; 0 when it has none that end.
func nftLeft(table, set string) (least time.Duration, err error) {
	list, err := dumpNft(unix.NFT_MSG_GETSETELEM, unix.NFPROTO_INET,
		textAttribute(unix.NFTA_SET_ELEM_LIST_TABLE, table), textAttribute(unix.NFTA_SET_ELEM_LIST_SET, set))
	if err != nil {
		return 0, fmt.Errorf("set %s of table %s: %w", set, table, err)
	}
	for _, message := range list {
		elements, err := nl.ParseRouteAttr(message[unix.NFTA_SET_ELEM_LIST_ELEMENTS])
		if err != nil {
			return 0, fmt.Errorf("set %s of table %s: %w", set, table, err)
		}
		for _, e := range elements {
			a, err := readAttributes(e.Value)
			if err != nil {
				return 0, fmt.Errorf("set %s of table %s: %w", set, table, err)
			}
			left := time.Duration(a.number(unix.NFTA_SET_ELEM_EXPIRATION)) * time.Millisecond
			if left > 0 && (least == 0 || left < least) {
				least = left
			}
		}
	}
	return least, nil
}

// nftCounters are the named counters of a table.
func nftCounters(family, table string) (counts map[string]Count, err error) {
	const sizes, packets = 1, 2 // NFTA_COUNTER_BYTES and NFTA_COUNTER_PACKETS of uapi/linux/netfilter/nf_tables.h
	list, err := dumpNft(unix.NFT_MSG_GETOBJ, nftFamilies[family], textAttribute(unix.NFTA_OBJ_TABLE, table))
	counts = map[string]Count{}
	for _, a := range list {
		if a.text(unix.NFTA_OBJ_TABLE) == table && a.number(unix.NFTA_OBJ_TYPE) == unix.NFT_OBJECT_COUNTER {
			data := a.nested(unix.NFTA_OBJ_DATA)
			counts[a.text(unix.NFTA_OBJ_NAME)] = Count{data.number(packets), data.number(sizes)}
		}
	}
	return counts, err
}
