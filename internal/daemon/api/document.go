// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Document is the OpenAPI document, version 3.1, of the routes.
func Document() map[string]any {
	d := documentor{schemas: map[string]any{}}
	paths := map[string]any{}
	for _, r := range Routes() {
		path, ok := paths[prefix+r.Path].(map[string]any)
		if !ok {
			path = map[string]any{}
			paths[prefix+r.Path] = path
		}
		path[strings.ToLower(r.Method)] = d.operation(r)
	}
	return map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "Floodwall", "version": "1",
			"description": "The API of `floodwall daemon`. Routes that change something are on the control socket only.",
		},
		"paths":      paths,
		"components": map[string]any{"schemas": d.schemas},
	}
}

// document answers with the OpenAPI document.
func (c *Call) document(context.Context) (map[string]any, error) { return Document(), nil }

// documentor collects the schemas that the OpenAPI document refers to.
type documentor struct{ schemas map[string]any }

var inPath = wording.Regexp(`\{(\w+)\}`)

// accessNotes describe for each kind of access who may use a route.
var accessNotes = map[Access]string{
	Read:    "on every socket",
	Packets: "on both unix sockets, and remotely with a certificate; it hands out packets",
	Change:  "on the control socket only",
}

func (d *documentor) operation(r Route) map[string]any {
	o := map[string]any{
		"summary":     r.Summary,
		"description": "Available " + accessNotes[r.Access] + ".",
		"responses": map[string]any{
			"200":     map[string]any{"description": "done", "content": d.content(r)},
			"default": map[string]any{"description": "an error", "content": d.json(Failure{})},
		},
	}
	if r.Body != nil {
		o["requestBody"] = map[string]any{"required": true, "content": d.json(r.Body)}
	}
	var parameters []any
	for _, name := range inPath().FindAllStringSubmatch(r.Path, -1) {
		parameters = append(parameters, map[string]any{
			"name": name[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"},
		})
	}
	for _, q := range r.Query {
		schema := map[string]any{"type": "string"}
		if q.Many {
			schema = map[string]any{"type": "array", "items": schema}
		}
		parameters = append(parameters, map[string]any{"name": q.Name, "in": "query", "description": q.Summary, "schema": schema})
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	return o
}

func (d *documentor) content(r Route) map[string]any {
	if r.Result == nil {
		return map[string]any{r.Type: map[string]any{}}
	}
	return d.json(r.Result)
}

func (d *documentor) json(value any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": d.schema(reflect.TypeOf(value))}}
}

var (
	timeType = reflect.TypeFor[time.Time]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// schema returns the JSON schema of a type as encoding/json writes it. Each structure gets a named schema of its own.
func (d *documentor) schema(t reflect.Type) map[string]any {
	switch {
	case t == timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(textType), t.Kind() == reflect.String:
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return d.named(t)
	}
	panic(fmt.Sprintf("no schema for %v", t))
}

// named adds the schema of a structure, and returns a reference to it.
func (d *documentor) named(t reflect.Type) map[string]any {
	name := t.Name()
	if !strings.HasSuffix(t.PkgPath(), "/api") {
		name = t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:] + "." + name
	}
	if _, ok := d.schemas[name]; !ok {
		d.schemas[name] = nil // in case the structure refers to itself
		properties := map[string]any{}
		required := d.fields(t, properties)
		schema := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			schema["required"] = required
		}
		d.schemas[name] = schema
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

// fields adds the fields of a structure and of its embedded structures. It returns the fields that are always present.
func (d *documentor) fields(t reflect.Type, to map[string]any) (required []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			required = append(required, d.fields(f.Type, to)...)
		default:
			if name == "" {
				name = f.Name
			}
			to[name] = d.schema(f.Type)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				required = append(required, name)
			}
		}
	}
	return required
}
