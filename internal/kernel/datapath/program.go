package datapath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Program is an image in the kernel, attached or not.
type Program struct {
	collection *ebpf.Collection
	spec       *ebpf.CollectionSpec
	linear     *ebpf.Program // the same for generic mode; loaded when first asked for
	key        uint64        // of questions
}

// Load loads an image and fills its maps. counters is the map to count in, or nil for a new one. Nothing is attached.
func Load(im *image.Image, counters *ebpf.Map) (*Program, error) {
	return LoadAfter(im, Inherited{Counters: counters})
}

// LoadAfter is Load for a program that goes on with maps of the generation before.
func LoadAfter(im *image.Image, from Inherited) (*Program, error) {
	spec, err := im.Spec()
	if err != nil {
		return nil, err
	}
	return load(im, spec, from)
}

// load loads a spec of the image.
func load(im *image.Image, spec *ebpf.CollectionSpec, from Inherited) (*Program, error) {
	spec.Maps[image.Counters].MaxEntries = countersSize(im.Slots)
	kept := from.replacements(spec)
	p, err := loadFilled(im, spec, kept)
	if err != nil {
		return nil, err
	}
	if kept[image.SynKeys] == nil {
		err = p.initKeys()
	} else if kept[image.CookiesSent] == nil {
		err = p.expectCookies()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// loadFilled loads a spec of the image that goes on with the kept maps, and writes the image's content to all others. It does both at once:
// the kernel takes a tenth of a second to verify the program, and so does a long list to be written.
func loadFilled(im *image.Image, spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map) (*Program, error) {
	if err := spec.Variables[image.ReadsKernel].Set(im.Egress && features.ReadsKernel()); err != nil {
		return nil, fmt.Errorf("constant %s: %w", image.ReadsKernel, err)
	}
	fresh, err := newMaps(im, spec, kept)
	defer closeMaps(fresh) // the program has descriptors of its own
	if err != nil {
		return nil, explainLoad(err)
	}
	filled := make(chan error, 1)
	go func() { filled <- fill(im, fresh, kept) }()
	all := maps.Clone(fresh)
	maps.Copy(all, kept)
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: all})
	notFilled := <-filled
	if err != nil {
		return nil, explainLoad(err)
	}
	p := &Program{collection: collection, spec: spec}
	p.key, _ = im.Constants["question_key"].(uint64)
	err = notFilled
	if err == nil && kept[image.ReplyFilter] == nil {
		err = p.initReplySecrets() // without keys all packets are of one flow
	}
	if err == nil && kept[image.ZoneTimes] == nil {
		err = p.initZoneKey()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// newMaps makes the maps of a spec that have content by the image, but for those that are kept. They have to be closed even if it fails.
func newMaps(im *image.Image, spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map) (map[string]*ebpf.Map, error) {
	fresh := map[string]*ebpf.Map{}
	for name := range im.Shapes {
		m := spec.Maps[name]
		if m == nil || m.Type != ebpf.Array || kept[name] != nil {
			continue
		}
		var err error
		if fresh[name], err = ebpf.NewMap(m); err != nil {
			return fresh, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return fresh, nil
}

func closeMaps(of map[string]*ebpf.Map) {
	for _, m := range of {
		m.Close()
	}
}

// explainLoad adds the remedy to errors that have one.
func explainLoad(err error) error {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("loading the program: not enough memory for its tables: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the program: %w (it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)", err)
	}
	return fmt.Errorf("loading the program: %w", err)
}

// fill writes the image's content to maps. What would be written to those that are kept is lost.
func fill(im *image.Image, fresh, kept map[string]*ebpf.Map) error {
	memory, release, err := memoryOf(fresh)
	if err != nil {
		return err
	}
	defer release()
	all := maps.Clone(memory)
	for name, m := range kept {
		if shape, ok := im.Shapes[name]; ok && m.Type() == ebpf.Array {
			all[name] = make([]byte, shape.Size())
		}
	}
	return im.Fill(all)
}

// initKeys draws the keys of cookies and of flows, when the program has any.
func (p *Program) initKeys() error {
	memory, release, err := p.Memory(image.SynKeys)
	if err != nil {
		return err
	}
	defer release()
	if keys := memory[image.SynKeys]; keys != nil {
		initKeys(keys)
	}
	return nil
}

// initReplySecrets draws the keys of the table of conversations, when the program has one. Each is odd: a factor must not lose a bit.
func (p *Program) initReplySecrets() error {
	memory, release, err := p.Memory(image.ReplyFilter)
	if err != nil {
		return err
	}
	defer release()
	if talk := memory[image.ReplyFilter]; talk != nil {
		rand.Read(talk[:image.ReplySecretsSize]) // does not fail
		for i := 0; i < image.ReplySecretsSize; i += 8 {
			talk[i] |= 1
		}
	}
	return nil
}

// initZoneKey draws the key of the hashes of names, when the program has one. A sender who knew it could have names taken for others.
func (p *Program) initZoneKey() error {
	memory, release, err := p.Memory(image.ZoneTimes)
	if err != nil {
		return err
	}
	defer release()
	if times := memory[image.ZoneTimes]; times != nil {
		rand.Read(times[:image.ZoneKeySize]) // does not fail
	}
	return nil
}

// expectCookies marks cookies as sent to every connection: another program has sent them without a record in this map.
// The marks expire as others do.
func (p *Program) expectCookies() error {
	memory, release, err := p.Memory(image.CookiesSent)
	if err != nil {
		return err
	}
	defer release()
	note := sentNote(image.Monotonic())
	for i := range memory[image.CookiesSent] {
		memory[image.CookiesSent][i] = note
	}
	return nil
}

// Map is one of the program's maps, nil when it has none of that name. It is valid until Close.
func (p *Program) Map(name string) *ebpf.Map { return p.collection.Maps[name] }

// Memory maps the named array maps, until release is called. A map that the program does not have, or that is one per
// CPU, is left out.
func (p *Program) Memory(names ...string) (memory map[string][]byte, release func(), err error) {
	named := map[string]*ebpf.Map{}
	for _, name := range names {
		if m := p.Map(name); m != nil && m.Type() == ebpf.Array {
			named[name] = m
		}
	}
	return memoryOf(named)
}

// memoryOf maps array maps, until release is called.
func memoryOf(arrays map[string]*ebpf.Map) (memory map[string][]byte, release func(), err error) {
	memory = map[string][]byte{}
	release = func() {
		for _, m := range memory {
			unmap(m)
		}
	}
	for name, m := range arrays {
		shape := image.Shape{ValueSize: m.ValueSize(), Entries: m.MaxEntries()}
		if memory[name], err = mapMemory(m, shape.Size()); err != nil {
			delete(memory, name)
			release()
			return nil, nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return memory, release, nil
}

// Native is the program for drivers that run XDP themselves.
func (p *Program) Native() *ebpf.Program { return p.collection.Programs[image.Program] }

// Linear is the same program for generic mode, where the kernel puts each frame in one piece. It is loaded when first
// asked for.
func (p *Program) Linear() (*ebpf.Program, error) {
	if p.linear != nil {
		return p.linear, nil
	}
	spec := p.spec.Copy()
	image.Linear(spec)
	for _, m := range spec.Maps {
		m.Contents = nil
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.collection.Maps})
	if err != nil {
		return nil, explainLoad(err)
	}
	defer collection.Close()
	p.linear = collection.DetachProgram(image.Program)
	return p.linear, nil
}

// Ingress is the program for what XDP has passed, nil when the image has none.
func (p *Program) Ingress() *ebpf.Program { return p.side(entering) }

// Egress is the program for what leaves, nil when the image has none.
func (p *Program) Egress() *ebpf.Program { return p.side(leaving) }

func (p *Program) side(side Mode) *ebpf.Program { return p.collection.Programs[string(side)] }

// Close gives up the file descriptors. What is attached or pinned stays.
func (p *Program) Close() {
	p.collection.Close()
	if p.linear != nil {
		p.linear.Close()
	}
}
