// SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"sync"
)

// ProgramForm returns a hash of the fields of Program. Versions of floodwall in which Program has other fields have another hash.
var ProgramForm = sync.OnceValue(func() string { return formOf(reflect.TypeFor[Program]()) })

// formOf returns a hash of the names and types of all fields in a type.
func formOf(t reflect.Type) string {
	h := fnv.New64a()
	seen := map[reflect.Type]bool{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		fmt.Fprint(h, t.Kind(), " ", t, ";")
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				fmt.Fprint(h, t.Field(i).Name, t.Field(i).Tag, ":")
				add(t.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice, reflect.Array:
			add(t.Elem())
		case reflect.Map:
			add(t.Key())
			add(t.Elem())
		}
	}
	add(t)
	return fmt.Sprintf("%016x", h.Sum64())
}
