package nftable

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// head is struct nfgenmsg, which begins each message of netfilter.
type head struct{ family uint8 }

func (h head) Len() int          { return 4 }
func (h head) Serialize() []byte { return []byte{h.family, 0, 0, 0} }

// ask dumps what the kernel has of a kind, and hands each message's attributes out.
func ask(kind int, family uint8, add func(attributes) error, with ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
	req.AddData(head{family})
	for _, a := range with {
		req.AddData(a)
	}
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if len(m) < 4 {
			return fmt.Errorf("a message of %d bytes", len(m))
		}
		a, err := parse(m[4:])
		if err != nil {
			return err
		}
		if err := add(a); err != nil {
			return err
		}
	}
	return nil
}

// Read reads a table of the network namespace of the calling thread.
func Read(family uint8, name string) (*Table, error) {
	t := &Table{Family: family, Name: name, Sets: map[string]*Set{}, Objects: map[string]*Object{}}
	for _, part := range []struct {
		what string
		kind int
		add  func(attributes) error
	}{
		{"chains", unix.NFT_MSG_GETCHAIN, t.addChain},
		{"sets", unix.NFT_MSG_GETSET, t.addSet},
		{"objects", unix.NFT_MSG_GETOBJ, t.addObject},
		{"rules", unix.NFT_MSG_GETRULE, t.addRule},
	} {
		// The table's name is the first attribute of all of these.
		err := ask(part.kind, family, func(a attributes) error {
			if a.name(unix.NFTA_CHAIN_TABLE) != name {
				return nil
			}
			return part.add(a)
		})
		if err != nil {
			return nil, fmt.Errorf("reading the %s of table %s from the kernel: %w", part.what, name, err)
		}
	}
	for _, s := range t.Sets {
		if err := t.readElements(s); err != nil {
			return nil, fmt.Errorf("reading the elements of set %s from the kernel: %w", s.Name, err)
		}
	}
	return t, nil
}

func (t *Table) addChain(a attributes) error {
	c := &Chain{Name: a.name(unix.NFTA_CHAIN_NAME)}
	if nested := a.take(unix.NFTA_CHAIN_HOOK); nested != nil {
		h, err := parse(nested)
		if err != nil {
			return err
		}
		c.Hook = &Hook{h.number(unix.NFTA_HOOK_HOOKNUM), int32(h.number(unix.NFTA_HOOK_PRIORITY)), a.number(unix.NFTA_CHAIN_POLICY)}
	}
	t.Chains = append(t.Chains, c)
	return nil
}

func (t *Table) addSet(a attributes) error {
	s := &Set{
		Name: a.name(unix.NFTA_SET_NAME), Flags: a.number(unix.NFTA_SET_FLAGS), KeyBytes: int(a.number(unix.NFTA_SET_KEY_LEN)),
		Timeout: a.long(unix.NFTA_SET_TIMEOUT),
	}
	desc, err := parse(a.take(unix.NFTA_SET_DESC))
	if err != nil {
		return err
	}
	s.Size = desc.number(unix.NFTA_SET_DESC_SIZE)
	t.Sets[s.Name] = s
	return nil
}

func (t *Table) addObject(a attributes) error {
	o := &Object{Name: a.name(unix.NFTA_OBJ_NAME), Type: a.number(unix.NFTA_OBJ_TYPE)}
	if o.Type == unix.NFT_OBJECT_LIMIT {
		data, err := parse(a.take(unix.NFTA_OBJ_DATA))
		if err != nil {
			return err
		}
		l := limit(data)
		o.Limit = &l
	}
	t.Objects[o.Name] = o
	return nil
}

func (t *Table) addRule(a attributes) error {
	c := t.Chain(a.name(unix.NFTA_RULE_CHAIN))
	if c == nil {
		return fmt.Errorf("a rule of a chain that is not there")
	}
	expressions, err := list(a.take(unix.NFTA_RULE_EXPRESSIONS))
	if err != nil {
		return err
	}
	var rule Rule
	for _, b := range expressions {
		e, err := decodeExpression(b)
		if err != nil {
			return fmt.Errorf("chain %s, rule %d: %w", c.Name, len(c.Rules)+1, err)
		}
		rule = append(rule, e)
	}
	c.Rules = append(c.Rules, rule)
	return nil
}

func (t *Table) readElements(s *Set) error {
	return ask(unix.NFT_MSG_GETSETELEM, t.Family, func(a attributes) error {
		elements, err := list(a.take(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
		if err != nil {
			return err
		}
		for _, b := range elements {
			e, err := element(b)
			if err != nil {
				return err
			}
			s.Elements = append(s.Elements, e)
		}
		return nil
	}, nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(t.Name)), nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(s.Name)))
}

func element(b []byte) (e Element, err error) {
	a, err := parse(b)
	if err != nil {
		return e, err
	}
	a.take(unix.NFTA_SET_ELEM_USERDATA) // remarks of nft
	a.take(unix.NFTA_SET_ELEM_PAD)
	if flags := a.take(unix.NFTA_SET_ELEM_FLAGS); len(flags) == 4 {
		n := binary.BigEndian.Uint32(flags)
		e.End = n&1 != 0
		if n&^1 != 0 {
			return e, fmt.Errorf("not covered: an element with flags %#x", n)
		}
	}
	if data := a.take(unix.NFTA_SET_ELEM_DATA); data != nil {
		v, err := verdict(data)
		if err != nil {
			return e, err
		}
		e.Verdict = &v
	}
	if e.Key, err = a.value(unix.NFTA_SET_ELEM_KEY); err != nil {
		return e, err
	}
	if err := left(a); err != nil {
		return e, fmt.Errorf("not covered: an element with %w", err)
	}
	return e, nil
}
