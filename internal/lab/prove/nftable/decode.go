package nftable

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Numbers of include/uapi/linux/netfilter/nf_tables.h that golang.org/x/sys/unix does not have.
const (
	setInterval = 1 << 2
	setTimeout  = 1 << 4
	setEval     = 1 << 5

	bitwiseOp      = 6 // NFTA_BITWISE_OP
	bitwiseData    = 7
	connlimitCount = 1
	connlimitFlags = 2
	firstReg32     = 8
	registerBytes  = 64
)

// attribute types have flags above these bits.
const attributeType = 1<<14 - 1

// attributes are the attributes of a message, or nested in another, by type. A type is read once only: take removes it.
type attributes map[uint16][]byte

func parse(b []byte) (attributes, error) {
	out := attributes{}
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

// list are the elements of a nested list.
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

func (a attributes) take(kind uint16) []byte {
	v := a[kind]
	delete(a, kind)
	return v
}

func (a attributes) number(kind uint16) uint32 {
	if v := a.take(kind); len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (a attributes) long(kind uint16) uint64 {
	if v := a.take(kind); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (a attributes) small(kind uint16) uint8 {
	if v := a.take(kind); len(v) == 1 {
		return v[0]
	}
	return 0
}

// name is text without the byte that ends it.
func (a attributes) name(kind uint16) string {
	v := a.take(kind)
	if n := len(v); n > 0 && v[n-1] == 0 {
		v = v[:n-1]
	}
	return string(v)
}

// register is the first byte of a register in the file.
func (a attributes) register(kind uint16) (int, error) {
	switch n := int(a.number(kind)); {
	case n >= 1 && n <= 4:
		return 16 * (n - 1), nil
	case n >= firstReg32 && n < firstReg32+registerBytes/4:
		return 4 * (n - firstReg32), nil
	default:
		return 0, fmt.Errorf("register %d", n)
	}
}

// value is the bytes of a nested NFTA_DATA_VALUE.
func (a attributes) value(kind uint16) ([]byte, error) {
	nested, err := parse(a.take(kind))
	if err != nil {
		return nil, err
	}
	v := nested.take(unix.NFTA_DATA_VALUE)
	if len(v) == 0 || len(nested) > 0 {
		return nil, fmt.Errorf("attribute %d is no value", kind)
	}
	return slices.Clone(v), nil
}

func verdict(b []byte) (v Verdict, err error) {
	data, err := parse(b)
	if err != nil {
		return v, err
	}
	nested, err := parse(data.take(unix.NFTA_DATA_VERDICT))
	if err != nil {
		return v, err
	}
	if _, ok := nested[unix.NFTA_VERDICT_CODE]; !ok || len(data) > 0 {
		return v, fmt.Errorf("data that is no verdict")
	}
	v = Verdict{int32(nested.number(unix.NFTA_VERDICT_CODE)), nested.name(unix.NFTA_VERDICT_CHAIN)}
	return v, left(nested)
}

// left is an error if attributes are there that nobody has read.
func left(a attributes) error {
	for kind := range a {
		return fmt.Errorf("attribute %d, whose meaning is not known", kind)
	}
	return nil
}

// decodeExpression reads an expression, of its name and data.
func decodeExpression(b []byte) (Expression, error) {
	a, err := parse(b)
	if err != nil {
		return nil, err
	}
	name := a.name(unix.NFTA_EXPR_NAME)
	read, ok := decoders[name]
	if !ok {
		return nil, fmt.Errorf("not covered: the expression %q", name)
	}
	data, err := parse(a.take(unix.NFTA_EXPR_DATA))
	if err == nil {
		var e Expression
		if e, err = read(data); err == nil {
			for _, padding := range paddings[name] {
				delete(data, padding)
			}
			if err = left(data); err == nil {
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("not covered: the expression %q: %w", name, err)
}

// paddings are attributes without a meaning.
var paddings = map[string][]uint16{"limit": {unix.NFTA_LIMIT_PAD}, "dynset": {unix.NFTA_DYNSET_PAD}}

var decoders map[string]func(attributes) (Expression, error)

func init() {
	decoders = map[string]func(attributes) (Expression, error){
		"payload": payload, "cmp": cmp, "range": ranged, "bitwise": bitwise, "byteorder": byteorder, "meta": meta, "ct": ct, "fib": fib,
		"exthdr": exthdr, "lookup": lookup, "immediate": immediate, "objref": objref, "dynset": dynset, "reject": reject,
		"limit": func(a attributes) (Expression, error) { return limit(a), nil },
		"connlimit": func(a attributes) (Expression, error) {
			return Connlimit{a.number(connlimitCount), a.number(connlimitFlags)&1 != 0}, nil
		},
		"notrack": func(attributes) (Expression, error) { return Notrack{}, nil },
		"synproxy": func(a attributes) (Expression, error) {
			clear(a) // what it answers is not asked
			return Synproxy{}, nil
		},
	}
}

func payload(a attributes) (Expression, error) {
	if _, writes := a[unix.NFTA_PAYLOAD_SREG]; writes {
		clear(a)
		return PayloadSet{}, nil
	}
	to, err := a.register(unix.NFTA_PAYLOAD_DREG)
	return Payload{to, a.number(unix.NFTA_PAYLOAD_BASE), int(a.number(unix.NFTA_PAYLOAD_OFFSET)), int(a.number(unix.NFTA_PAYLOAD_LEN))}, err
}

func cmp(a attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_CMP_SREG)
	if err != nil {
		return nil, err
	}
	v, err := a.value(unix.NFTA_CMP_DATA)
	return Cmp{from, a.number(unix.NFTA_CMP_OP), v}, err
}

func ranged(a attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_RANGE_SREG)
	if err != nil {
		return nil, err
	}
	least, err := a.value(unix.NFTA_RANGE_FROM_DATA)
	if err != nil {
		return nil, err
	}
	most, err := a.value(unix.NFTA_RANGE_TO_DATA)
	return Range{from, a.number(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_NEQ, least, most}, err
}

func bitwise(a attributes) (Expression, error) {
	if op := a.number(bitwiseOp); op != 0 || a[bitwiseData] != nil {
		return nil, fmt.Errorf("operation %d", op)
	}
	from, err := a.register(unix.NFTA_BITWISE_SREG)
	if err != nil {
		return nil, err
	}
	to, err := a.register(unix.NFTA_BITWISE_DREG)
	if err != nil {
		return nil, err
	}
	mask, err := a.value(unix.NFTA_BITWISE_MASK)
	if err != nil {
		return nil, err
	}
	xor, err := a.value(unix.NFTA_BITWISE_XOR)
	if n := int(a.number(unix.NFTA_BITWISE_LEN)); err == nil && (n != len(mask) || n != len(xor)) {
		err = fmt.Errorf("%d bytes with masks of %d and %d", n, len(mask), len(xor))
	}
	return Bitwise{from, to, mask, xor}, err
}

func byteorder(a attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_BYTEORDER_SREG)
	if err != nil {
		return nil, err
	}
	to, err := a.register(unix.NFTA_BYTEORDER_DREG)
	a.take(unix.NFTA_BYTEORDER_OP) // to the host's order and from it are the same
	e := Byteorder{from, to, int(a.number(unix.NFTA_BYTEORDER_LEN)), int(a.number(unix.NFTA_BYTEORDER_SIZE))}
	if err == nil && (e.Size == 0 || e.Bytes%e.Size != 0) {
		err = fmt.Errorf("%d bytes of numbers of %d", e.Bytes, e.Size)
	}
	return e, err
}

func meta(a attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_META_DREG)
	return Meta{to, a.number(unix.NFTA_META_KEY)}, err
}

func ct(a attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_CT_DREG)
	direction := -1
	if v := a.take(unix.NFTA_CT_DIRECTION); len(v) == 1 {
		direction = int(v[0])
	}
	return Ct{to, a.number(unix.NFTA_CT_KEY), direction}, err
}

func fib(a attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_FIB_DREG)
	flags, result := a.number(unix.NFTA_FIB_FLAGS), a.number(unix.NFTA_FIB_RESULT)
	if err == nil && (result != unix.NFT_FIB_RESULT_ADDRTYPE || flags != unix.NFTA_FIB_F_SADDR && flags != unix.NFTA_FIB_F_DADDR) {
		err = fmt.Errorf("result %d with flags %d", result, flags)
	}
	return Fib{to, flags == unix.NFTA_FIB_F_SADDR}, err
}

func exthdr(a attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_EXTHDR_DREG)
	return Exthdr{
		To: to, Op: a.number(unix.NFTA_EXTHDR_OP), Type: a.small(unix.NFTA_EXTHDR_TYPE), Offset: int(a.number(unix.NFTA_EXTHDR_OFFSET)),
		Bytes: int(a.number(unix.NFTA_EXTHDR_LEN)), Present: a.number(unix.NFTA_EXTHDR_FLAGS)&1 != 0,
	}, err
}

func lookup(a attributes) (Expression, error) {
	e := Lookup{Set: a.name(unix.NFTA_LOOKUP_SET), Not: a.number(unix.NFTA_LOOKUP_FLAGS)&1 != 0}
	if to, ok := a[unix.NFTA_LOOKUP_DREG]; ok {
		e.Map = true
		if a.take(unix.NFTA_LOOKUP_DREG); binary.BigEndian.Uint32(to) != 0 {
			return nil, fmt.Errorf("a map to other data than verdicts")
		}
	}
	var err error
	e.From, err = a.register(unix.NFTA_LOOKUP_SREG)
	return e, err
}

func immediate(a attributes) (Expression, error) {
	if to := a[unix.NFTA_IMMEDIATE_DREG]; len(to) == 4 && binary.BigEndian.Uint32(to) != 0 {
		to, err := a.register(unix.NFTA_IMMEDIATE_DREG)
		if err != nil {
			return nil, err
		}
		v, err := a.value(unix.NFTA_IMMEDIATE_DATA)
		return Value{to, v}, err
	}
	a.take(unix.NFTA_IMMEDIATE_DREG)
	v, err := verdict(a.take(unix.NFTA_IMMEDIATE_DATA))
	return Immediate{v}, err
}

func objref(a attributes) (Expression, error) {
	return Objref{a.number(unix.NFTA_OBJREF_IMM_TYPE), a.name(unix.NFTA_OBJREF_IMM_NAME)}, nil
}

func dynset(a attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_DYNSET_SREG_KEY)
	if err != nil {
		return nil, err
	}
	a.take(unix.NFTA_DYNSET_FLAGS)   // that it has an expression
	a.take(unix.NFTA_DYNSET_TIMEOUT) // of elements: 0 is that of the set
	e := Dynset{Set: a.name(unix.NFTA_DYNSET_SET_NAME), Op: a.number(unix.NFTA_DYNSET_OP), From: from}
	if nested := a.take(unix.NFTA_DYNSET_EXPR); nested != nil {
		e.Expression, err = decodeExpression(nested)
	}
	return e, err
}

func reject(a attributes) (Expression, error) {
	return Reject{a.number(unix.NFTA_REJECT_TYPE), a.small(unix.NFTA_REJECT_ICMP_CODE)}, nil
}

func limit(a attributes) Limit {
	return Limit{
		Rate: a.long(unix.NFTA_LIMIT_RATE), Unit: a.long(unix.NFTA_LIMIT_UNIT), Burst: a.number(unix.NFTA_LIMIT_BURST),
		Bytes: a.number(unix.NFTA_LIMIT_TYPE) == 1, Over: a.number(unix.NFTA_LIMIT_FLAGS)&1 != 0,
	}
}
