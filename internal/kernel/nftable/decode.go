// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"encoding/binary"
	"fmt"

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

	elementEnd  = 1 << 0 // NFT_SET_ELEM_INTERVAL_END
	hookDevices = 4      // NFTA_HOOK_DEVS
)

func verdict(b []byte) (v Verdict, err error) {
	data, err := ParseAttributes(b)
	if err != nil {
		return v, err
	}
	nested, err := ParseAttributes(data.Take(unix.NFTA_DATA_VERDICT))
	if err != nil {
		return v, err
	}
	if _, ok := nested[unix.NFTA_VERDICT_CODE]; !ok || len(data) > 0 {
		return v, fmt.Errorf("data that is no verdict")
	}
	v = Verdict{int32(nested.number(unix.NFTA_VERDICT_CODE)), nested.Text(unix.NFTA_VERDICT_CHAIN)}
	return v, left(nested)
}

// decodeExpression decodes an expression, which has a name and data.
func decodeExpression(b []byte) Expression {
	a, err := ParseAttributes(b)
	if err != nil {
		return Unknown{Cause: err}
	}
	name := a.Text(unix.NFTA_EXPR_NAME)
	read, ok := decoders[name]
	if !ok {
		return Unknown{name, fmt.Errorf("the expression %q", name)}
	}
	data, err := a.Nested(unix.NFTA_EXPR_DATA)
	if err == nil {
		var e Expression
		if e, err = read(data); err == nil {
			for _, padding := range paddings[name] {
				delete(data, padding)
			}
			if err = left(data); err == nil {
				return e
			}
		}
	}
	return Unknown{name, fmt.Errorf("the expression %q: %w", name, err)}
}

// paddings are attributes without a meaning.
var paddings = map[string][]uint16{"limit": {unix.NFTA_LIMIT_PAD}, "dynset": {unix.NFTA_DYNSET_PAD}}

var decoders map[string]func(Attributes) (Expression, error)

func init() {
	decoders = map[string]func(Attributes) (Expression, error){
		"payload": payload, "cmp": cmp, "range": ranged, "bitwise": bitwise, "byteorder": byteorder, "meta": meta, "ct": ct, "fib": fib,
		"exthdr": exthdr, "lookup": lookup, "immediate": immediate, "objref": objref, "dynset": dynset, "reject": reject,
		"limit": func(a Attributes) (Expression, error) { return limit(a), nil },
		"connlimit": func(a Attributes) (Expression, error) {
			return Connlimit{a.number(connlimitCount), a.number(connlimitFlags)&1 != 0}, nil
		},
		"notrack": func(Attributes) (Expression, error) { return Notrack{}, nil },
		"synproxy": func(a Attributes) (Expression, error) {
			clear(a) // the content of its answers is irrelevant here
			return Synproxy{}, nil
		},
	}
}

func payload(a Attributes) (Expression, error) {
	if _, writes := a[unix.NFTA_PAYLOAD_SREG]; writes {
		clear(a)
		return PayloadSet{}, nil
	}
	to, err := a.register(unix.NFTA_PAYLOAD_DREG)
	return Payload{to, a.number(unix.NFTA_PAYLOAD_BASE), int(a.number(unix.NFTA_PAYLOAD_OFFSET)), int(a.number(unix.NFTA_PAYLOAD_LEN))}, err
}

func cmp(a Attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_CMP_SREG)
	if err != nil {
		return nil, err
	}
	v, err := a.value(unix.NFTA_CMP_DATA)
	return Cmp{from, a.number(unix.NFTA_CMP_OP), v}, err
}

func ranged(a Attributes) (Expression, error) {
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

func bitwise(a Attributes) (Expression, error) {
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

func byteorder(a Attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_BYTEORDER_SREG)
	if err != nil {
		return nil, err
	}
	to, err := a.register(unix.NFTA_BYTEORDER_DREG)
	a.Take(unix.NFTA_BYTEORDER_OP) // conversion to the host's byte order and from it is the same operation
	e := Byteorder{from, to, int(a.number(unix.NFTA_BYTEORDER_LEN)), int(a.number(unix.NFTA_BYTEORDER_SIZE))}
	if err == nil && (e.Size == 0 || e.Bytes%e.Size != 0) {
		err = fmt.Errorf("%d bytes of numbers of %d", e.Bytes, e.Size)
	}
	return e, err
}

func meta(a Attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_META_DREG)
	return Meta{to, a.number(unix.NFTA_META_KEY)}, err
}

func ct(a Attributes) (Expression, error) {
	if _, writes := a[unix.NFTA_CT_SREG]; writes {
		key := a.number(unix.NFTA_CT_KEY)
		clear(a)
		return CtSet{key}, nil
	}
	to, err := a.register(unix.NFTA_CT_DREG)
	direction := -1
	if v := a.Take(unix.NFTA_CT_DIRECTION); len(v) == 1 {
		direction = int(v[0])
	}
	return Ct{to, a.number(unix.NFTA_CT_KEY), direction}, err
}

func fib(a Attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_FIB_DREG)
	flags, result := a.number(unix.NFTA_FIB_FLAGS), a.number(unix.NFTA_FIB_RESULT)
	if err == nil && (result != unix.NFT_FIB_RESULT_ADDRTYPE || flags != unix.NFTA_FIB_F_SADDR && flags != unix.NFTA_FIB_F_DADDR) {
		err = fmt.Errorf("result %d with flags %d", result, flags)
	}
	return Fib{to, flags == unix.NFTA_FIB_F_SADDR}, err
}

func exthdr(a Attributes) (Expression, error) {
	to, err := a.register(unix.NFTA_EXTHDR_DREG)
	return Exthdr{
		To: to, Op: a.number(unix.NFTA_EXTHDR_OP), Type: uint8(a.Number(unix.NFTA_EXTHDR_TYPE)), Offset: int(a.number(unix.NFTA_EXTHDR_OFFSET)),
		Bytes: int(a.number(unix.NFTA_EXTHDR_LEN)), Present: a.number(unix.NFTA_EXTHDR_FLAGS)&1 != 0,
	}, err
}

func lookup(a Attributes) (Expression, error) {
	e := Lookup{Set: a.Text(unix.NFTA_LOOKUP_SET), Not: a.number(unix.NFTA_LOOKUP_FLAGS)&1 != 0}
	if to, ok := a[unix.NFTA_LOOKUP_DREG]; ok {
		e.Map = true
		if a.Take(unix.NFTA_LOOKUP_DREG); binary.BigEndian.Uint32(to) != 0 {
			return nil, fmt.Errorf("a map to other data than verdicts")
		}
	}
	var err error
	e.From, err = a.register(unix.NFTA_LOOKUP_SREG)
	return e, err
}

func immediate(a Attributes) (Expression, error) {
	if to := a[unix.NFTA_IMMEDIATE_DREG]; len(to) == 4 && binary.BigEndian.Uint32(to) != 0 {
		to, err := a.register(unix.NFTA_IMMEDIATE_DREG)
		if err != nil {
			return nil, err
		}
		v, err := a.value(unix.NFTA_IMMEDIATE_DATA)
		return Value{to, v}, err
	}
	a.Take(unix.NFTA_IMMEDIATE_DREG)
	v, err := verdict(a.Take(unix.NFTA_IMMEDIATE_DATA))
	return Immediate{v}, err
}

func objref(a Attributes) (Expression, error) {
	return Objref{a.number(unix.NFTA_OBJREF_IMM_TYPE), a.Text(unix.NFTA_OBJREF_IMM_NAME)}, nil
}

func dynset(a Attributes) (Expression, error) {
	from, err := a.register(unix.NFTA_DYNSET_SREG_KEY)
	if err != nil {
		return nil, err
	}
	a.Take(unix.NFTA_DYNSET_FLAGS)   // says that there is an expression
	a.Take(unix.NFTA_DYNSET_TIMEOUT) // timeout of the elements; 0 means the set's timeout
	e := Dynset{Set: a.Text(unix.NFTA_DYNSET_SET_NAME), Op: a.number(unix.NFTA_DYNSET_OP), From: from}
	if nested := a.Take(unix.NFTA_DYNSET_EXPR); nested != nil {
		e.Expression = decodeExpression(nested)
	}
	return e, err
}

func reject(a Attributes) (Expression, error) {
	return Reject{a.number(unix.NFTA_REJECT_TYPE), uint8(a.Number(unix.NFTA_REJECT_ICMP_CODE))}, nil
}

func limit(a Attributes) Limit {
	return Limit{
		Rate: a.Number(unix.NFTA_LIMIT_RATE), Unit: a.Number(unix.NFTA_LIMIT_UNIT), Burst: a.number(unix.NFTA_LIMIT_BURST),
		Bytes: a.number(unix.NFTA_LIMIT_TYPE) == 1, Over: a.number(unix.NFTA_LIMIT_FLAGS)&1 != 0,
	}
}
