// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attributeType masks the type of an attribute: NLA_TYPE_MASK of uapi/linux/netlink.h. The two upper bits are flags.
const attributeType = 0x3fff

// Attributes are the attributes of a netlink message, or of a nested attribute, by type. A method that reads an attribute also removes it. After all
// reads only the unknown attributes remain.
type Attributes map[uint16][]byte

// ParseAttributes parses attributes of distinct types. It returns an error if a type occurs twice.
func ParseAttributes(b []byte) (Attributes, error) {
	out := Attributes{}
	for len(b) > 0 {
		value, kind, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		if _, ok := out[kind]; ok {
			return nil, fmt.Errorf("attribute %d is there twice", kind)
		}
		out[kind], b = value, rest
	}
	return out, nil
}

func next(b []byte) (value []byte, kind uint16, rest []byte, err error) {
	if len(b) < unix.SizeofNlAttr {
		return nil, 0, nil, fmt.Errorf("%d bytes are no attribute", len(b))
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < unix.SizeofNlAttr || size > len(b) {
		return nil, 0, nil, fmt.Errorf("an attribute of %d bytes, where there are %d", size, len(b))
	}
	return b[unix.SizeofNlAttr:size], binary.NativeEndian.Uint16(b[2:]) & attributeType, b[min(len(b), (size+3)&^3):], nil
}

// list returns the elements of a nested list.
func list(b []byte) (out [][]byte, err error) {
	for len(b) > 0 {
		value, kind, rest, err := next(b)
		if err != nil {
			return nil, err
		}
		if kind != unix.NFTA_LIST_ELEM {
			return nil, fmt.Errorf("attribute %d in a list", kind)
		}
		out, b = append(out, value), rest
	}
	return out, nil
}

// Take removes an attribute and returns its value. It returns nil if there is no such attribute.
func (a Attributes) Take(kind uint16) []byte {
	v := a[kind]
	delete(a, kind)
	return v
}

// Number returns a number of up to 64 bits in network byte order. It returns 0 if there is no such attribute.
func (a Attributes) Number(kind uint16) (n uint64) {
	v := a.Take(kind)
	if len(v) > 8 {
		return 0
	}
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// Text returns a text without its final 0 byte.
func (a Attributes) Text(kind uint16) string { return unix.ByteSliceToString(a.Take(kind)) }

// Nested returns the attributes in the value of an attribute.
func (a Attributes) Nested(kind uint16) (Attributes, error) { return ParseAttributes(a.Take(kind)) }

func (a Attributes) number(kind uint16) uint32 { return uint32(a.Number(kind)) }

// register returns the offset of a register in the register file, in bytes.
func (a Attributes) register(kind uint16) (int, error) {
	switch n := int(a.number(kind)); {
	case n >= 1 && n <= 4:
		return 16 * (n - 1), nil
	case n >= firstReg32 && n < firstReg32+registerBytes/4:
		return 4 * (n - firstReg32), nil
	default:
		return 0, fmt.Errorf("register %d", n)
	}
}

// value returns the bytes of a nested NFTA_DATA_VALUE.
func (a Attributes) value(kind uint16) ([]byte, error) {
	nested, err := a.Nested(kind)
	if err != nil {
		return nil, err
	}
	v := nested.Take(unix.NFTA_DATA_VALUE)
	if len(v) == 0 || len(nested) > 0 {
		return nil, fmt.Errorf("attribute %d is no value", kind)
	}
	return slices.Clone(v), nil
}

// left returns an error if unread attributes remain.
func left(a Attributes) error {
	for kind := range a {
		return fmt.Errorf("attribute %d, whose meaning is not known", kind)
	}
	return nil
}

// Answer is a message of netfilter.
type Answer struct {
	Family uint8
	Attributes
}

// ReadAnswer parses a message without its netlink header. The message starts with struct nfgenmsg.
func ReadAnswer(message []byte) (a Answer, err error) {
	if len(message) < nl.SizeofNfgenmsg {
		return a, fmt.Errorf("a message of %d bytes", len(message))
	}
	a.Family = message[0]
	a.Attributes, err = ParseAttributes(message[nl.SizeofNfgenmsg:])
	return a, err
}

// Ask sends a message to a subsystem of netfilter and returns the answers. The upper bits of kind name the subsystem.
func Ask(kind, flags int, family uint8, data ...nl.NetlinkRequestData) (answers []Answer, err error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, d := range data {
		req.AddData(d)
	}
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		a, err := ReadAnswer(m)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// dump lists the objects of a kind in a family of nftables. The list is empty if the kernel has no nftables or the table does not exist.
func dump(kind int, family uint8, data ...nl.NetlinkRequestData) (list []Answer, err error) {
	const tries = 10
	for range tries {
		list, err = Ask(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP, family, data...)
		if !errors.Is(err, nl.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) { // an interrupted dump is repeated, because nftables has changed meanwhile
			break
		}
	}
	for _, none := range []error{unix.ENOENT, unix.EINVAL, unix.EPROTONOSUPPORT, unix.EOPNOTSUPP} {
		if errors.Is(err, none) {
			return nil, nil
		}
	}
	return list, err
}

// of returns the attribute that selects a table. It returns nothing for "", which means all tables.
func of(table string) []nl.NetlinkRequestData {
	if table == "" {
		return nil
	}
	return []nl.NetlinkRequestData{nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table))}
}
