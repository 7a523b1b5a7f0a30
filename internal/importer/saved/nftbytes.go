// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// raw is a raw payload expression, which selects bits at an offset: @th,64,32.
type raw struct {
	base        string
	offset, len int      // in bits
	mask        *big.Int // nil means all bits
}

// maxBits is the largest number of bits that a comparison may have.
const maxBits = 128

// rawSelector reads a raw payload expression.
func rawSelector(v any) selector {
	p := member(v, "payload")
	base, _ := member(p, "base").(string)
	offset, ok1 := member(p, "offset").(float64)
	length, ok2 := member(p, "len").(float64)
	if !ok1 || !ok2 || length < 1 || length > maxBits || base != "nh" && base != "th" && base != "ih" {
		return selector{unknown: expression(v)}
	}
	return selector{bytes: &raw{base: base, offset: int(offset), len: int(length)}}
}

// masked returns s with a mask applied.
func (s selector) masked(v any) selector {
	mask, ok := bigNumber(v, s.bytes.len)
	if !ok || s.bytes.mask != nil {
		return selector{unknown: s.bytes.String() + " & " + expression(v)}
	}
	r := *s.bytes
	r.mask = mask
	return selector{bytes: &r}
}

// String returns b in nft's notation.
func (b *raw) String() string { return fmt.Sprintf("@%s,%d,%d", b.base, b.offset, b.len) }

// exact is the smallest number from which on a float64 cannot represent every integer.
const exact = 1 << 53

// statementOf parses a statement. Numbers that a float64 cannot represent exactly become strings.
func statementOf(text []byte) (s map[string]any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&s) != nil || len(s) == 0 {
		return nil, false
	}
	return numbers(s).(map[string]any), true
}

// numbers returns v with its json.Numbers converted to float64, or to strings if they are too large for that.
func numbers(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for name, member := range x {
			x[name] = numbers(member)
		}
	case []any:
		for i, item := range x {
			x[i] = numbers(item)
		}
	case json.Number:
		f, err := x.Float64()
		if err != nil || math.Abs(f) >= exact {
			return x.String()
		}
		return f
	}
	return v
}

// bigNumber reads a number of the given length in bits. nft prints numbers of 64 bits as signed, so a negative one is
// converted.
func bigNumber(v any, length int) (n *big.Int, ok bool) {
	switch x := v.(type) {
	case float64:
		n, ok = big.NewInt(int64(x)), x == math.Trunc(x)
	case string:
		n, ok = new(big.Int).SetString(x, 0)
	}
	if ok && n.Sign() < 0 && length == 64 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 64))
	}
	return n, ok && n.Sign() >= 0 && n.BitLen() <= length
}

// bytes compares bits at an offset. Each value makes one Cond.
func (r *nftRuleReader) bytes(c Cond, b raw, op string, right any) []Cond {
	list, ok := listOf(right)
	if !ok {
		list = []any{right}
	}
	if op != "==" && op != "!=" || op == "!=" && len(list) != 1 || len(list) > MaxTuples {
		return []Cond{unknownValue(c, op, b.String()+" "+expression(right))}
	}
	var alts []Cond
	for _, v := range list {
		v, _ = element(v)
		n, ok := bigNumber(v, b.len)
		if !ok {
			return []Cond{unknownValue(c, op, b.String()+" "+expression(right))}
		}
		one, ok := r.placed(b, n, op == "!=")
		if !ok {
			one = one.WithUnknown("bits of the IP header at " + b.String())
		}
		alts = append(alts, c.And(one))
	}
	return alts
}

// placed returns the Cond for packets whose bits have the value n. If not is true, it returns the Cond for packets whose bits have another value.
func (r *nftRuleReader) placed(b raw, n *big.Int, not bool) (c Cond, ok bool) {
	if b.base == "nh" {
		return r.inHeader(b, n, not)
	}
	first, last := b.offset/8, (b.offset+b.len-1)/8
	mask := b.mask
	if mask == nil {
		mask = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(b.len)), big.NewInt(1))
	}
	left := uint(8*(last+1) - b.offset - b.len)
	size := last - first + 1
	at := At{Header: b.base == "th", Offset: first,
		Mask:  string(new(big.Int).Lsh(mask, left).FillBytes(make([]byte, size))),
		Value: string(new(big.Int).Lsh(n, left).FillBytes(make([]byte, size)))}
	p := Payload{At: []At{at}, Not: not}
	r.inner = r.inner || b.base == "ih"
	if not {
		c = c.Narrowed("packets that end before these bytes match the policy's rule, and not this one")
	}
	return c.WithPayload(p), true
}

// ofInner limits c to the protocols with a header of a length that the policy can read. c must be the condition of a whole rule
// that tests bytes after the L4 header. nft can read headers of more protocols.
func ofInner(c Cond) Cond {
	known := Only(ProtoTCP, ProtoUDP)
	if proto := c.Implied()[packet.Proto]; proto == nil || !proto.Within(known) {
		c = c.Narrowed("of the protocols whose header nft knows the end of, the policy reads TCP and UDP")
	}
	return c.With(packet.Proto, known)
}

// inHeader returns the Cond that bits of the IP header have the value n. It needs a rule for one family.
func (r *nftRuleReader) inHeader(b raw, n *big.Int, not bool) (c Cond, ok bool) {
	const most = 32
	if b.mask != nil || b.len > most || not {
		return c, false
	}
	f := r.file.table(r.head, r.head.Table).Families
	for _, a := range r.rule.Alts {
		switch v := a.Field[packet.Family]; {
		case v != nil && v.Within(FamilyValues[IPv4]):
			f &= IPv4
		case v != nil && v.Within(FamilyValues[IPv6]):
			f &= IPv6
		}
	}
	if f != IPv4 && f != IPv6 {
		return c, false
	}
	return Word{Bit: b.offset, Width: b.len, Values: Only(uint32(n.Uint64()))}.Cond(f)
}
