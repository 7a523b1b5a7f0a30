// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
)

// generator is a loaded program with its own state.
type generator struct {
	Program *ebpf.Program
	Sent    *ebpf.Variable
	Limit   *ebpf.Variable
	NextDue *ebpf.Variable
	maps    map[string]*ebpf.Map
}

// sent returns the number of packets that the program has sent; 0 if it is closed.
func (g *generator) sent() (n uint64) {
	if g.Sent != nil {
		_ = g.Sent.Get(&n) // the size is right, so it cannot fail
	}
	return n
}

func (g *generator) close() error {
	var errs []error
	for _, m := range g.maps {
		errs = append(errs, m.Close())
	}
	if g.Program != nil {
		errs = append(errs, g.Program.Close())
	}
	*g = generator{}
	return errors.Join(errs...)
}

// readLab parses the compiled C once, because parsing takes longer than loading most of its programs.
var readLab = sync.OnceValues(loadLab)

// labSpec returns a copy of the compiled C, to change and to load.
func labSpec() (*ebpf.CollectionSpec, error) {
	spec, err := readLab()
	return spec.Copy(), err
}

// loadGenerator loads a generator that has the whole flow as constants.
func loadGenerator(t *template, f *Flow, seed uint64) (generator, error) {
	spec, err := labSpec()
	if err != nil {
		return generator{}, err
	}
	setList(spec.Maps[labMapSources], f.From.list, seed)
	setList(spec.Maps[labMapDestinations], f.To.list, ^seed)
	var words [headerMax / 8]uint64
	for i := range words {
		var bytes [8]byte
		copy(bytes[:], t.frame[min(i*8, len(t.frame)):])
		words[i] = binary.NativeEndian.Uint64(bytes[:])
	}
	vars := map[string]any{labVarFlow: t.flow, labVarHeader: words, labVarSeed: seed, labVarLimit: uint64(math.MaxUint64)}
	return load(spec, labProgGenerate, vars)
}

// load sets variables, and loads one program with its maps.
func load(spec *ebpf.CollectionSpec, program string, vars map[string]any) (g generator, err error) {
	for name, value := range vars {
		if err := spec.Variables[name].Set(value); err != nil {
			return generator{}, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	for name := range spec.Programs {
		if name != program {
			delete(spec.Programs, name)
		}
	}
	unused(spec, program)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return generator{}, fmt.Errorf("load program %s: %w", program, err)
	}
	g = generator{Program: coll.DetachProgram(program), maps: make(map[string]*ebpf.Map)}
	g.Sent, g.Limit, g.NextDue = coll.Variables[labVarSent], coll.Variables[labVarLimit], coll.Variables[labVarNextDue]
	for name := range coll.Maps {
		g.maps[name] = coll.DetachMap(name)
	}
	return g, nil
}

// unused removes the maps that the program does not use from the collection.
func unused(spec *ebpf.CollectionSpec, program string) {
	used := map[string]bool{".rodata": true, ".bss": true, ".data": true}
	for _, ins := range spec.Programs[program].Instructions {
		used[ins.Reference()] = true
	}
	for name := range spec.Maps {
		if !used[name] {
			delete(spec.Maps, name)
		}
	}
}

// mixSeed derives the n-th seed. The seed is never 0, because xorshift cannot leave this state.
func mixSeed(seed uint64, n int) uint64 {
	return rand.New(rand.NewPCG(seed, uint64(n))).Uint64() | 1
}

// setList fills a list map with the addresses, in an order that seed determines. So the order is random for the receiver, but the generator reads the
// map in sequence. This causes no cache misses, even with a long list.
func setList(spec *ebpf.MapSpec, list []netip.Addr, seed uint64) {
	if len(list) < 2 {
		return
	}
	size := list[0].BitLen() / 8
	value := make([]byte, len(list)*size)
	for i, at := range rand.New(rand.NewPCG(seed, 0)).Perm(len(list)) {
		copy(value[at*size:], list[i].AsSlice())
	}
	spec.ValueSize = uint32(len(value))
	spec.Contents = []ebpf.MapKV{{Key: uint32(0), Value: value}}
}

// unite adapts the flows of a mix to the pages that they share. The pages have the length of the longest frame and contain zeros. Each flow writes
// the nonzero bytes of its frame, and cuts the page to its length.
func (s *Source) unite(templates []*template) error {
	longest := 0
	for _, t := range templates {
		longest = max(longest, len(t.frame))
	}
	s.frame = make([]byte, longest)
	for i, t := range templates {
		if f := &s.options.Flows[i]; l4Length(f)+len(f.Payload) > headerMax-headersBefore(f) {
			return fmt.Errorf("flow %d: headers and payload of a flow in a mix must fit in %d bytes", i, headerMax)
		}
		t.flow.Length = uint32(min(len(t.frame), headerMax))
		t.flow.Trim = uint32(longest - len(t.frame))
	}
	return nil
}

// loadMix loads the program that chooses one of the loaded flows for each packet.
func (s *Source) loadMix() (generator, error) {
	spec, err := labSpec()
	if err != nil {
		return generator{}, err
	}
	var recipe labRecipe
	s.pace(&recipe)
	vars := map[string]any{
		labVarFlow: recipe, labVarMixFlows: uint32(len(s.flows)), labVarMixBound: bounds(s.options.Flows),
		labVarSeed: mixSeed(s.options.Seed, maxFlows), labVarLimit: uint64(0),
	}
	for i := range s.flows {
		contents := ebpf.MapKV{Key: uint32(i), Value: uint32(s.flows[i].Program.FD())}
		spec.Maps[labMapFlows].Contents = append(spec.Maps[labMapFlows].Contents, contents)
	}
	return load(spec, labProgMix, vars)
}

// bounds divides [0, 2^32) by the weights of the flows.
func bounds(flows []Flow) (b [maxFlows]uint32) {
	weight := func(f *Flow) float64 {
		if f.Weight == 0 {
			return 1
		}
		return f.Weight
	}
	var total, sum float64
	for i := range flows {
		total += weight(&flows[i])
	}
	for i := range flows {
		sum += weight(&flows[i])
		b[i] = uint32(sum / total * math.MaxUint32)
	}
	b[len(flows)-1] = math.MaxUint32
	return b
}
