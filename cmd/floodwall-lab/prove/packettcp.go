// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Flags of TCP (RFC 9293, 3.1).
const (
	flagSYN = 1
	flagACK = 4
)

const mostOptions = 40 // bytes: 15 units of 4, minus the header

// tcp reads a TCP header (RFC 9293).
func (d *decoded) tcp() {
	whole := d.whole(20)
	d.ports(whole, 0)
	flags := d.l4(13, 1)
	size := d.word(d.Concat(d.Extract(d.l4(12, 1), 4, 4), d.Const(2, 0)))
	past := d.ULT(d.rest, size)
	syn, ack := d.bit(d.payload+13, flagSYN), d.bit(d.payload+13, flagACK)
	d.field[packet.Flags] = d.Ite(whole, d.word(flags), d.n(packet.FlagsNone))
	d.field[packet.MSS] = d.Ite(d.And(whole, syn), d.Ite(past, d.n(packet.MSSMissing), d.segmentSize(size)), d.n(packet.MSSNone))
	d.fail(packet.TCPHeader, d.And(whole, d.Or(d.ULT(size, d.n(20)), past)))
	valid := d.False()
	for f := range 256 {
		if packet.ValidFlags(byte(f)) {
			valid = d.Or(valid, d.is(flags, uint64(f)))
		}
	}
	d.fail(packet.TCPFlags, d.And(whole, d.Not(valid)))
	d.fail(packet.PortZero, d.And(whole, d.Or(d.is(d.l4(0, 2), 0), d.is(d.l4(2, 2), 0))))
	d.fail(packet.ACKZero, d.And(whole, ack, d.is(d.l4(8, 4), 0)))
	begins := d.And(whole, syn, d.Not(ack))
	d.fail(packet.SYNData, d.And(begins, d.ULT(size, d.rest)))
	d.fail(packet.SYNLowPort, d.And(begins, d.ULT(d.l4(0, 2), d.Const(16, 1024))))
	d.fail(packet.SYNWindowZero, d.And(begins, d.is(d.l4(14, 2), 0)))
	read := d.And(begins, d.ULE(d.n(20), size), d.Not(past))
	mss, fits := d.usualOptions(size)
	d.fail(packet.TCPOptions, d.And(read, d.Not(fits)))
	d.fail(packet.SYNNoMSS, d.And(read, d.Not(mss)))
}

// layout is a form of TCP header: a length, and known bytes of options. The model reads the options of headers with a known layout. For all other
// headers, it assumes an arbitrary result, because z3 could not handle a list of 40 bytes in which every length is unknown.
type layout struct {
	header int          // bytes; 0: any
	known  map[int]byte // at offsets after the first 20 bytes
}

// layouts are the headers of most SYNs: without options; with MSS alone; with the options of Linux; with those of Windows.
var layouts = []layout{
	{20, nil},
	{24, map[int]byte{0: 2, 1: 4}},
	{40, map[int]byte{0: 2, 1: 4, 4: 4, 5: 2, 6: 8, 7: 10, 16: 1, 17: 3, 18: 3}},
	{32, map[int]byte{0: 2, 1: 4, 4: 1, 5: 3, 6: 3, 8: 1, 9: 1, 10: 4, 11: 2}},
}

// firstMSS is a header whose first option is MSS.
var firstMSS = layout{0, map[int]byte{0: 2, 1: 4}}

// usualOptions reads the options of a complete header. mss holds if there is an MSS option. fits holds if the lengths of all options fit.
func (d *decoded) usualOptions(size *smt.Term) (mss, fits *smt.Term) {
	mss, fits = d.Var("options_mss", 0), d.Var("options_fit", 0)
	for _, l := range layouts {
		o := options{d, l.known, d.n(uint64(l.header))}
		seen, fit := o.read()
		is := d.And(d.is(size, uint64(l.header)), o.is())
		mss, fits = d.Ite(is, seen, mss), d.Ite(is, fit, fits)
	}
	return mss, fits
}

// segmentSize returns the value of the first MSS option of a complete header.
func (d *decoded) segmentSize(size *smt.Term) *smt.Term {
	o := options{d, firstMSS.known, size}
	return d.Ite(o.is(), o.mss(), d.Var("mss", 32))
}

// options contains the options of a complete header of the given length.
type options struct {
	*decoded
	known map[int]byte
	size  *smt.Term
}

// is returns a formula that holds if the header has the known bytes.
func (o *options) is() *smt.Term {
	out := o.True()
	for at, v := range o.known {
		out = o.And(out, o.decoded.is(o.l4(20+at, 1), uint64(v)))
	}
	return out
}

// option returns a byte of the options.
func (o *options) option(at int) *smt.Term {
	if v, ok := o.known[at]; ok {
		return o.Const(8, uint64(v))
	}
	return o.l4(20+at, 1)
}

// end returns a formula that holds if the options end before a byte.
func (o *options) end(at int) *smt.Term { return o.ULE(o.size, o.n(uint64(20+at))) }

// fits returns a formula that holds if the length of the option at an offset fits. The last byte has no length byte after it.
func (o *options) fits(at int) *smt.Term {
	if at+1 >= mostOptions {
		return o.False()
	}
	n := o.word(o.option(at + 1))
	return o.And(o.Not(o.end(at+1)), o.ULE(o.n(2), n), o.ULE(o.Add(n, o.n(uint64(20+at))), o.size))
}

// behind returns the formula for the place after an option. It selects an element of from by the length of the option.
func (o *options) behind(at int, from []*smt.Term) *smt.Term {
	out := from[mostOptions]
	for n := 2; at+n < mostOptions; n++ {
		out = o.Ite(o.decoded.is(o.option(at+1), uint64(n)), from[at+n], out)
	}
	return out
}

// read reads the options. mss holds if there is an MSS option. ok holds if the lengths of all options fit.
func (o *options) read() (mss, ok *smt.Term) {
	seen, fit := make([]*smt.Term, mostOptions+1), make([]*smt.Term, mostOptions+1)
	seen[mostOptions], fit[mostOptions] = o.False(), o.True()
	for at := mostOptions - 1; at >= 0; at-- {
		kind := o.option(at)
		over := o.Or(o.end(at), o.decoded.is(kind, 0))
		nop, fits := o.decoded.is(kind, 1), o.fits(at)
		later, laterFits := o.False(), o.True()
		if at+1 < mostOptions {
			later, laterFits = o.behind(at, seen), o.behind(at, fit)
		}
		seen[at] = o.And(o.Not(over), o.Ite(nop, seen[at+1], o.And(fits, o.Or(o.decoded.is(kind, 2), later))))
		fit[at] = o.Or(over, o.Ite(nop, fit[at+1], o.And(fits, laterFits)))
	}
	return seen[0], fit[0]
}

// mss returns the value of the first MSS option. The header may claim less than 20 bytes.
func (o *options) mss() *smt.Term {
	from := make([]*smt.Term, mostOptions+1)
	missing := o.n(packet.MSSMissing)
	from[mostOptions] = missing
	for at := mostOptions - 1; at >= 0; at-- {
		kind := o.option(at)
		over := o.Or(o.end(at), o.decoded.is(kind, 0))
		later := missing
		if at+1 < mostOptions {
			later = o.behind(at, from)
		}
		if at+3 < mostOptions {
			is := o.And(o.decoded.is(kind, 2), o.decoded.is(o.option(at+1), 4))
			later = o.Ite(is, o.word(o.l4(20+at+2, 2)), later)
		}
		from[at] = o.Ite(over, missing, o.Ite(o.decoded.is(kind, 1), from[at+1], o.Ite(o.fits(at), later, missing)))
	}
	return from[0]
}
