// SPDX-License-Identifier: Apache-2.0

package nftable

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// All functions read the network namespace of the calling thread. The family unix.NFPROTO_UNSPEC means all families. The table "" means all tables of
// a family.

// readAll dumps the objects of a kind and decodes those of a table. The first attribute of such an object must be the name of its table.
func readAll[T any](what string, kind int, family uint8, table string, read func(family uint8, table string, a Attributes) (T, error)) (all []T, err error) {
	explain := func(err error) error { return fmt.Errorf("reading the %s of nftables from the kernel: %w", what, err) }
	answers, err := dump(kind, family, of(table)...)
	if err != nil {
		return nil, explain(err)
	}
	for _, a := range answers {
		in := a.Text(unix.NFTA_RULE_TABLE)
		if table != "" && in != table {
			continue
		}
		one, err := read(a.Family, in, a.Attributes)
		if err != nil {
			return nil, explain(err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Tables returns the tables of a family, without their content.
func Tables(family uint8) ([]*Table, error) {
	return readAll("tables", unix.NFT_MSG_GETTABLE, family, "", func(family uint8, name string, _ Attributes) (*Table, error) {
		return &Table{Family: family, Name: name}, nil
	})
}

// Has reports whether a table exists.
func Has(family uint8, name string) (bool, error) {
	tables, err := Tables(family)
	return slices.ContainsFunc(tables, func(t *Table) bool { return t.Name == name }), err
}

// Chains returns the chains, without their rules.
func Chains(family uint8, table string) ([]*Chain, error) {
	return readAll("chains", unix.NFT_MSG_GETCHAIN, family, table, readChain)
}

// Sets returns the sets and maps, without their elements.
func Sets(family uint8, table string) ([]*Set, error) {
	return readAll("sets", unix.NFT_MSG_GETSET, family, table, readSet)
}

// Objects returns the named objects.
func Objects(family uint8, table string) ([]*Object, error) {
	return readAll("objects", unix.NFT_MSG_GETOBJ, family, table, readObject)
}

// Rules returns the rules of all chains. The rules of one chain are in their order.
func Rules(family uint8, table string) ([]*Rule, error) {
	return readAll("rules", unix.NFT_MSG_GETRULE, family, table, readRule)
}

// HasFlowtable reports whether there is a flowtable of any family.
func HasFlowtable() (bool, error) {
	list, err := dump(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC)
	return len(list) > 0, err
}

// Generation returns the generation number of nftables, which counts transactions (nf_tables_getgen in net/netfilter/nf_tables_api.c).
func Generation() (uint32, error) {
	answers, err := Ask(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, unix.NFPROTO_UNSPEC)
	if err != nil {
		return 0, fmt.Errorf("asking nftables for its generation: %w", err)
	}
	for _, a := range answers {
		if a.Attributes[unix.NFTA_GEN_ID] != nil {
			return a.number(unix.NFTA_GEN_ID), nil
		}
	}
	return 0, errors.New("asking nftables for its generation: no answer has it")
}

// ReadWhole reads a table with all its content.
func ReadWhole(family uint8, name string) (*Table, error) {
	t, err := Read(family, name)
	if err != nil {
		return nil, err
	}
	for _, s := range t.Sets {
		if s.Elements, err = Elements(family, name, s.Name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Read reads a table without the elements of its sets, of which there may be millions. If nftables changes meanwhile, Read starts again, so that all
// parts are consistent. If nftables changes all the time, they may be inconsistent.
func Read(family uint8, name string) (t *Table, err error) {
	const tries = 10
	for range tries {
		before, failed := Generation()
		t, err = read(family, name)
		if after, _ := Generation(); failed != nil || after == before {
			break
		}
	}
	return t, err
}

func read(family uint8, name string) (*Table, error) {
	t := &Table{Family: family, Name: name, Sets: map[string]*Set{}, Objects: map[string]*Object{}}
	chains, err := Chains(family, name)
	if err != nil {
		return nil, err
	}
	t.Chains = chains
	rules, err := Rules(family, name)
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		c := t.Chain(r.Chain)
		if c == nil {
			return nil, fmt.Errorf("a rule of chain %s of table %s, which is not there", r.Chain, name)
		}
		c.Rules = append(c.Rules, *r)
	}
	sets, err := Sets(family, name)
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		t.Sets[s.Name] = s
	}
	objects, err := Objects(family, name)
	for _, o := range objects {
		t.Objects[o.Name] = o
	}
	return t, err
}

func readChain(family uint8, table string, a Attributes) (*Chain, error) {
	c := &Chain{
		Family: family, Table: table, Name: a.Text(unix.NFTA_CHAIN_NAME), Type: a.Text(unix.NFTA_CHAIN_TYPE), Uses: int(a.Number(unix.NFTA_CHAIN_USE)),
	}
	if a[unix.NFTA_CHAIN_HOOK] == nil {
		return c, nil
	}
	h, err := a.Nested(unix.NFTA_CHAIN_HOOK)
	if err != nil {
		return nil, err
	}
	c.Hook = &Hook{Number: h.number(unix.NFTA_HOOK_HOOKNUM), Priority: int32(h.number(unix.NFTA_HOOK_PRIORITY)), Policy: a.number(unix.NFTA_CHAIN_POLICY)}
	if one := h.Text(unix.NFTA_HOOK_DEV); one != "" {
		c.Hook.Devices = []string{one}
	}
	for devices := h.Take(hookDevices); len(devices) > 0; {
		var value []byte
		if value, _, devices, err = next(devices); err != nil {
			return nil, err
		}
		if name := unix.ByteSliceToString(value); !slices.Contains(c.Hook.Devices, name) {
			c.Hook.Devices = append(c.Hook.Devices, name)
		}
	}
	slices.Sort(c.Hook.Devices)
	return c, nil
}

func readSet(family uint8, table string, a Attributes) (*Set, error) {
	s := &Set{
		Family: family, Table: table, Name: a.Text(unix.NFTA_SET_NAME), Flags: a.number(unix.NFTA_SET_FLAGS),
		KeyType: a.number(unix.NFTA_SET_KEY_TYPE), KeyBytes: int(a.Number(unix.NFTA_SET_KEY_LEN)), Timeout: a.Number(unix.NFTA_SET_TIMEOUT),
	}
	desc, err := a.Nested(unix.NFTA_SET_DESC)
	if err != nil {
		return nil, err
	}
	s.Size = desc.number(unix.NFTA_SET_DESC_SIZE)
	for kind, value := range remarks(a.Take(unix.NFTA_SET_USERDATA)) {
		s.Merges = s.Merges || kind == remarkMerges && slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
	}
	return s, nil
}

func readObject(family uint8, table string, a Attributes) (*Object, error) {
	o := &Object{Name: a.Text(unix.NFTA_OBJ_NAME), Type: a.number(unix.NFTA_OBJ_TYPE)}
	data, err := a.Nested(unix.NFTA_OBJ_DATA)
	switch o.Type {
	case unix.NFT_OBJECT_LIMIT:
		l := limit(data)
		o.Limit = &l
	case unix.NFT_OBJECT_COUNTER:
		o.Packets, o.Bytes = data.Number(unix.NFTA_COUNTER_PACKETS), data.Number(unix.NFTA_COUNTER_BYTES)
	}
	return o, err
}

func readRule(family uint8, table string, a Attributes) (*Rule, error) {
	r := &Rule{Family: family, Table: table, Chain: a.Text(unix.NFTA_RULE_CHAIN), Handle: a.Number(unix.NFTA_RULE_HANDLE)}
	for kind, value := range remarks(a.Take(unix.NFTA_RULE_USERDATA)) {
		if kind == remarkComment {
			r.Comment = unix.ByteSliceToString(value)
		}
	}
	expressions, err := list(a.Take(unix.NFTA_RULE_EXPRESSIONS))
	if err != nil {
		return nil, err
	}
	for _, b := range expressions {
		r.Expressions = append(r.Expressions, decodeExpression(b))
	}
	return r, nil
}

// Elements returns the elements of a set in the kernel's order. It leaves out expired elements.
func Elements(family uint8, table, set string) (all []Element, err error) {
	explain := func(err error) error {
		return fmt.Errorf("reading the elements of set %s from the kernel: %w", set, err)
	}
	answers, err := dump(unix.NFT_MSG_GETSETELEM, family, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(table)),
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	if err != nil {
		return nil, explain(err)
	}
	for _, a := range answers {
		elements, err := list(a.Take(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return nil, explain(err)
		}
		for _, b := range elements {
			e, err := element(b)
			if err != nil {
				return nil, explain(err)
			}
			all = append(all, e)
		}
	}
	return all, nil
}

func element(b []byte) (e Element, err error) {
	a, err := ParseAttributes(b)
	if err != nil {
		return e, err
	}
	a.Take(unix.NFTA_SET_ELEM_PAD)
	for kind, value := range remarks(a.Take(unix.NFTA_SET_ELEM_USERDATA)) {
		if kind == remarkComment {
			e.Comment = unix.ByteSliceToString(value)
		}
	}
	e.Expires = a[unix.NFTA_SET_ELEM_EXPIRATION] != nil
	e.Timeout, e.Left = a.Number(unix.NFTA_SET_ELEM_TIMEOUT), a.Number(unix.NFTA_SET_ELEM_EXPIRATION)
	flags := a.number(unix.NFTA_SET_ELEM_FLAGS)
	if e.End = flags&elementEnd != 0; flags&^elementEnd != 0 {
		e.Unread = fmt.Errorf("an element with flags %#x", flags)
	}
	if data := a.Take(unix.NFTA_SET_ELEM_DATA); data != nil {
		v, err := verdict(data)
		e.Verdict, e.Unread = &v, err
	}
	if a[unix.NFTA_SET_ELEM_KEY] != nil { // the catchall element has no key
		if e.Key, err = a.value(unix.NFTA_SET_ELEM_KEY); err != nil {
			return e, err
		}
	}
	if err := left(a); err != nil {
		e.Unread = fmt.Errorf("an element with %w", err)
	}
	return e, nil
}

// The types of user data that nft stores with objects (libnftnl's udata.h). User data is a byte with the type, a byte with the length, and a value.
const (
	remarkComment = 0 // of rules and elements: NFTNL_UDATA_RULE_COMMENT, NFTNL_UDATA_SET_ELEM_COMMENT
	remarkMerges  = 2 // of sets: NFTNL_UDATA_SET_MERGE_ELEMENTS
)

func remarks(data []byte) map[byte][]byte {
	out := map[byte][]byte{}
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		out[data[0]] = data[2 : 2+int(data[1])]
		data = data[2+int(data[1]):]
	}
	return out
}
