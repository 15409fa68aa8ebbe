#!/usr/bin/env python3
"""Writes the index templates and retention policies beside itself, and the saved objects into
../assets.

  generate.py           write all of them
  generate.py --check   compare with what is there; exit 1 and name the files that differ

Files, F = elasticsearch | opensearch, K = job | usage (the first word of an event's kind):
  F-K.json                 composable index template for indices by date, pattern scriptorium-K-*
  F-K-stream.json          the same for a data stream, pattern scriptorium-stream-K*
  F-K[-stream]-policy.json retention: ILM for Elasticsearch, ISM for OpenSearch
  ../assets/kibana.ndjson, ../assets/dashboards.ndjson
                           saved objects for Kibana from 8.8 on; for Kibana 7.10 to 8.7 and
                           OpenSearch Dashboards

A document is the event (docs/schema/event-1.schema.json) with @timestamp and the few members that
the sink adds.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ASSETS = HERE.parent / "assets"
# of the templates; raise it with every change that a destination must be set up again for
VERSION = 10

# ---- the analyzer for shell scripts --------------------------------------------------------------
# A token is a word with inner dots, with the dashes before it if it begins a flag; all else
# separates. So "a/b=c" is the phrase "a b c", and "--mem-per-cpu" is "--mem per cpu", which
# "mem-per-cpu" finds too. Parts of a word (foo_bar: foo, bar;
# --mem: mem) are added at the same position, at index time only.
# The quantifiers are possessive, because java.util.regex recurses for each repetition of a greedy
# group: a script of "a.a.a.a..." would overflow the stack of the search node and end it. "truncate"
# is there because a single token of more than 32,766 bytes (a long hex string) would have the
# document refused.
WORD = r"\p{L}\p{N}_"
ANALYSIS = {
    "tokenizer": {"shell_tokens": {
        "type": "pattern", "group": 0,
        "pattern": rf"(?:(?<![{WORD}\-])--?)?[{WORD}]++(?:\.[{WORD}]++)*+"}},
    "filter": {
        "shell_max": {"type": "truncate", "length": 256},
        "shell_parts": {"type": "pattern_capture", "preserve_original": True,
                        "patterns": [rf"([{WORD}]++(?:\.[{WORD}]++)*+)", r"([\p{L}\p{N}]++)"]},
    },
    "analyzer": {
        "shell": {"type": "custom", "tokenizer": "shell_tokens",
                  "filter": ["shell_max", "shell_parts", "lowercase", "remove_duplicates"]},
        "shell_search": {"type": "custom", "tokenizer": "shell_tokens",
                         "filter": ["shell_max", "lowercase"]},
    },
}
SHELL = {"type": "text", "norms": False, "analyzer": "shell", "search_analyzer": "shell_search",
         "search_quote_analyzer": "shell_search"}


# ---- mappings ------------------------------------------------------------------------------------
def keyword(longest=1024, words=False):
    """Never without ignore_above: one longer than 32,766 bytes would have the whole document
    refused. With words, a sub-field .words is searched like a script."""
    field = {"type": "keyword", "ignore_above": longest}
    return {**field, "fields": {"words": dict(SHELL)}} if words else field


def alias(path):
    return {"type": "alias", "path": path}


def obj(**properties):
    return {"properties": properties}


DATE, BOOLEAN, LONG, DOUBLE = ({"type": t} for t in ("date", "boolean", "long", "double"))
HASH = keyword(64)
UNINDEXED = {"type": "object", "enabled": False}  # any JSON, kept in _source, never an error


def common():
    """What every kind of event has. Names of the Elastic Common Schema where it has one, and
    aliases to its others and to those of Slurm's own jobcomp/elasticsearch."""
    return {
        # Never lenient here: a document without a valid time is stored and then found in no time
        # range.
        "@timestamp": {"type": "date", "ignore_malformed": False},
        "schema": keyword(), "id": HASH, "supersedes": HASH, "replaces": HASH, "kind": keyword(),
        "time": DATE, "captured_at": DATE, "capture": keyword(), "complete": BOOLEAN,
        "problems": keyword(4096), "lossy": keyword(),
        "cluster": keyword(), "scheduler": keyword(), "host": obj(name=keyword()),
        "job": obj(
            id=keyword(), name=keyword(words=True), account=keyword(), partition=keyword(),
            qos=keyword(),
            array=obj(job_id=keyword(), task_id=HASH, task_spec=keyword()),
            het=obj(job_id=keyword(), component=LONG, synthetic=BOOLEAN),
            submitted_at=DATE, work_dir=keyword(4096, words=True),
            sluid=keyword(), restarts=LONG, state=keyword(), exit_code=keyword(), started_at=DATE,
            ended_at=DATE),
        "user": obj(name=keyword(), id=HASH, group=obj(name=keyword(), id=HASH), verified=BOOLEAN,
                    unverified_reason=keyword()),
        "parts": keyword(),
        "redactions": obj(rule=keyword(), where=keyword(), count=LONG, kept=BOOLEAN, lines=LONG,
                          names=keyword()),
        "labels": {"type": "object", "dynamic": True},
        "event": obj(id=alias("id"), created=alias("captured_at"), provider=alias("scheduler")),
        "jobid": alias("job.id"),
    }


def job_family(flavor):
    # flat_object has no ignore_above and no wildcards inside a value; both take one field for all
    # variables, so that users' names cannot blow up the mapping.
    environment = {"type": "flat_object"} if flavor == "opensearch" else {"type": "flattened",
                                                                          "ignore_above": 1024}
    return {
        "script": obj(
            text=dict(SHELL), encoding=keyword(32), size=LONG, sha256=HASH, interpreter=keyword(),
            directives=keyword(4096, words=True), modules=keyword(words=True),
            software=obj(kind=keyword(), name=keyword(4096, words=True)),
            # the last one: the sink's
            location=keyword(4096), truncated=BOOLEAN, raw={"type": "binary"}),
        "environment": environment, "details": environment, "environment_size": LONG,
        "environment_format": keyword(),
        "environment_truncated": BOOLEAN,
        "files": obj(name=keyword(), size=LONG, sha256=HASH),
    }


def usage_family(_):
    # Of a sample, of a node's summary and of a job's share one mapping, so nothing has one name and
    # two types: what is a number at one time (utilization_ratio) is a group of statistics in a
    # summary (utilization.avg_ratio).
    statistics = obj(avg_ratio=DOUBLE, min_ratio=DOUBLE, max_ratio=DOUBLE, p50_ratio=DOUBLE)
    return {
        "usage": obj(
            seq=LONG, interval_seconds=DOUBLE, elapsed_seconds=DOUBLE, started_at=DATE,
            ended_at=DATE,
            source=obj(cpu=keyword(), memory=keyword(), io=keyword(), gpu=keyword()),
            request=obj(nodes=LONG, cpus=LONG, memory_bytes=LONG, gpus=LONG, shared_gpu=BOOLEAN,
                        time_limit_seconds=DOUBLE),
            cpu=obj(time_seconds=DOUBLE, user_seconds=DOUBLE, system_seconds=DOUBLE,
                    allocated=LONG, pressure_some_seconds=DOUBLE,
                    throttled_seconds=DOUBLE, efficiency_ratio=DOUBLE, system_ratio=DOUBLE,
                    idle_tail_seconds=DOUBLE,
                    utilization_ratio=DOUBLE, utilization=statistics),
            memory=obj(working_set_bytes=LONG, anon_bytes=LONG, shmem_bytes=LONG, file_bytes=LONG,
                       swap_bytes=LONG, charged_bytes=LONG,
                       limit_bytes=LONG, oom_kills=LONG, peak_working_set_bytes=LONG,
                       avg_working_set_bytes=LONG,
                       peak_charged_bytes=LONG, peak_swap_bytes=LONG, peak_bytes=LONG,
                       peak_node_bytes=LONG, efficiency_ratio=DOUBLE,
                       pressure_full_seconds=DOUBLE),
            io=obj(read_bytes=LONG, written_bytes=LONG, pressure_full_seconds=DOUBLE),
            time=obj(efficiency_ratio=DOUBLE),
            gpu=obj(count=LONG, utilization_ratio=DOUBLE, memory_efficiency_ratio=DOUBLE,
                    peak_utilization_ratio=DOUBLE, peak_memory_bytes=LONG, energy_joules=DOUBLE),
            energy=obj(nodes_joules=DOUBLE),
            tasks=obj(current=LONG, peak=LONG), node=obj(cpus=LONG, memory_bytes=LONG),
            gpus=obj(id=keyword(), index=LONG, model=keyword(), utilization_ratio=DOUBLE,
                     utilization=statistics,
                     memory_used_bytes=LONG, memory_limit_bytes=LONG, peak_memory_bytes=LONG,
                     power_watts=DOUBLE, energy_joules=DOUBLE,
                     zero_ratio=DOUBLE, longest_zero_seconds=DOUBLE, throttled_ratio=DOUBLE,
                     samples=LONG),
            programs=obj(name=keyword(), script=keyword(), container=keyword(), path=keyword(),
                         build_id=keyword(), cpu_seconds=DOUBLE, cpu_ratio=DOUBLE, processes=LONG,
                         threads=LONG, busy_threads=LONG, ranks=LONG),
            programs_other=obj(cpu_seconds=DOUBLE, cpu_ratio=DOUBLE),
            programs_unseen=obj(cpu_seconds=DOUBLE, cpu_ratio=DOUBLE),
            steps=obj(name=keyword(), started_at=DATE, ended_at=DATE, elapsed_seconds=DOUBLE,
                      cpu=obj(time_seconds=DOUBLE, allocated=LONG, efficiency_ratio=DOUBLE),
                      memory=obj(peak_working_set_bytes=LONG, peak_charged_bytes=LONG,
                                 oom_kills=LONG),
                      gpu=obj(count=LONG, utilization_ratio=DOUBLE, peak_memory_bytes=LONG),
                      last_read=keyword()),
            steps_other=obj(steps=LONG, cpu_seconds=DOUBLE),
            quality=obj(samples=LONG, covered_ratio=DOUBLE, last_read=keyword(),
                        gap_seconds=DOUBLE, nodes_reporting=LONG,
                        nodes_expected=LONG, status=keyword(),
                        not_credible=obj(figure=keyword(), value=DOUBLE, text=keyword(4096))),
            # the rest of a node's block is in _source, and in its own usage.node document
            nodes=obj(host=obj(name=keyword())),
            findings=obj(id=keyword(), severity=keyword(), value=DOUBLE, threshold=DOUBLE,
                         unit=keyword(), scope=keyword(),
                         hosts=keyword(), steps=keyword(), suggest=UNINDEXED,
                         text=keyword(4096, words=True), help_url=keyword()),
            suggest=obj(cpus=LONG, memory_bytes=LONG, time_limit_seconds=DOUBLE, gpus=LONG,
                        directives=keyword(), condition=keyword())),
    }


FAMILIES = {"job": (job_family, ["script.text", "job.id", "job.name", "user.name", "cluster",
                                 "job.account"]),
            "usage": (usage_family, ["job.id", "job.name", "user.name", "cluster", "job.account",
                                     "usage.findings.id"])}


def name_of(family, stream):
    return f"scriptorium-stream-{family}" if stream else f"scriptorium-{family}"


def pattern_of(family, stream):
    return f"scriptorium-stream-{family}*" if stream else f"scriptorium-{family}-*"


def template(flavor, family, stream):
    properties, default_field = FAMILIES[family]
    index = {
        # No refresh_interval: the default refreshes every second while somebody searches, and not
        # at all while nobody does.
        "number_of_shards": 1, "codec": "best_compression",
        "mapping": {"total_fields": {"limit": 500}, "ignore_malformed": True},
        # what a bare word in the query bar is looked for in
        "query": {"default_field": default_field},
        "analysis": ANALYSIS,
    }
    if flavor == "elasticsearch":
        index["lifecycle"] = {"name": name_of(family, stream)}
    made = {
        "index_patterns": [pattern_of(family, stream)], "priority": 500, "version": VERSION,
        "template": {
            "settings": {"index": index},
            "mappings": {
                # Unknown members stay in _source and never become fields, so users cannot make the
                # mapping grow.
                "dynamic": "false", "date_detection": False,
                "_meta": {"schema": "scriptorium.event/1", "version": VERSION},
                "properties": {**common(), **properties(flavor)},
                "dynamic_templates": [{"labels": {"path_match": "labels.*", "mapping": keyword()}}],
            },
        },
        "_meta": {"managed_by": "scriptorium", "version": VERSION},
    }
    if stream:
        made["data_stream"] = {}
    return made


# ---- retention -----------------------------------------------------------------------------------
KEEP = "730d"


def ilm(stream):
    """Indices by date have no rollover (it fails without a write alias), and no read-only phase: an
    event that is found late (a spool entry of last year, a replay) goes into its own month's
    index."""
    phases = {"hot": {"actions": {}}, "delete": {"min_age": KEEP, "actions": {"delete": {}}}}
    if stream:
        phases["hot"]["actions"]["rollover"] = {"max_primary_shard_size": "25gb", "max_age": "90d"}
        phases["warm"] = {"min_age": "1d", "actions": {"forcemerge": {"max_num_segments": 1}}}
    return {"policy": {"phases": phases, "_meta": {"managed_by": "scriptorium"}}}


def ism(family, stream):
    hot = [{"rollover": {"min_primary_shard_size": "25gb", "min_index_age": "90d"}}] if stream \
        else []
    return {"policy": {
        "description": "Retention of Scriptorium's documents", "default_state": "hot",
        "states": [{"name": "hot", "actions": hot,
                    "transitions": [{"state_name": "delete",
                                     "conditions": {"min_index_age": KEEP}}]},
                   {"name": "delete", "actions": [{"delete": {}}], "transitions": []}],
        "ism_template": [{"index_patterns": [pattern_of(family, stream)], "priority": 100}]}}


# ---- saved objects -------------------------------------------------------------------------------
def packed(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


JOBS, USAGE = "scriptorium-job", "scriptorium-usage"
INDEX_REF = "kibanaSavedObjectMeta.searchSourceJSON.index"


def source(query="", **more):
    return {"searchSourceJSON": packed({"query": {"query": query, "language": "kuery"},
                                        "filter": [], "indexRefName": INDEX_REF, **more})}


def on_jobs():
    return [{"name": INDEX_REF, "type": "index-pattern", "id": JOBS}]


COUNT = {"id": "1", "enabled": True, "type": "count", "schema": "metric", "params": {}}


def terms(number, field, size, schema="bucket"):
    return {"id": str(number), "enabled": True, "type": "terms", "schema": schema, "params": {
        "field": field, "orderBy": "1", "order": "desc", "size": size, "otherBucket": False,
        "otherBucketLabel": "Other",
        "missingBucket": False, "missingBucketLabel": "Missing"}}


TABLE = {"perPage": 10, "showPartialRows": False, "showMetricsAtAllLevels": False,
         "showTotal": False, "totalFunc": "sum",
         "percentageCol": ""}
PIE = {"type": "pie", "addTooltip": True, "addLegend": True, "legendPosition": "right",
       "isDonut": True,
       "labels": {"show": False, "values": True, "last_level": True, "truncate": 100}}
BARS = {
    "type": "histogram", "grid": {"categoryLines": False}, "addTooltip": True, "addLegend": True,
    "legendPosition": "right",
    "times": [], "addTimeMarker": False, "labels": {"show": False},
    "thresholdLine": {"show": False, "value": 10, "width": 1, "style": "full", "color": "#E7664C"},
    "categoryAxes": [{"id": "CategoryAxis-1", "type": "category", "position": "bottom",
                      "show": True, "style": {},
                      "scale": {"type": "linear"},
                      "labels": {"show": True, "filter": True, "truncate": 100}, "title": {}}],
    "valueAxes": [{"id": "ValueAxis-1", "name": "LeftAxis-1", "type": "value", "position": "left",
                   "show": True, "style": {},
                   "scale": {"type": "linear", "mode": "normal"},
                   "labels": {"show": True, "rotate": 0, "filter": False, "truncate": 100},
                   "title": {"text": "Jobs"}}],
    "seriesParams": [{"show": True, "type": "histogram", "mode": "stacked",
                      "data": {"label": "Count", "id": "1"},
                      "valueAxis": "ValueAxis-1", "drawLinesBetweenPoints": True, "lineWidth": 2,
                      "showCircles": True}],
}
OVER_TIME = {"id": "2", "enabled": True, "type": "date_histogram", "schema": "segment", "params": {
    "field": "@timestamp", "useNormalizedEsInterval": True, "interval": "auto",
    "drop_partials": False, "min_doc_count": 1,
    "extended_bounds": {}}}
FAILURES = "complete: false or problems: * or lossy: *"
# id, title, type, aggregations, parameters, query. Aggregation-based ones only: OpenSearch
# Dashboards has no Lens.
VISUALIZATIONS = [
    ("scriptorium-jobs-over-time", "Job scripts over time", "histogram",
     [COUNT, OVER_TIME, terms(3, "cluster", 5, "group")], BARS, ""),
    ("scriptorium-top-users", "Job scripts by user", "table", [COUNT, terms(2, "user.name", 20)],
     TABLE, ""),
    ("scriptorium-top-modules", "Job scripts by module", "table",
     [COUNT, terms(2, "script.modules", 20)], TABLE, ""),
    ("scriptorium-interpreters", "Job scripts by interpreter", "pie",
     [COUNT, terms(2, "script.interpreter", 10, "segment")], PIE, ""),
    ("scriptorium-capture-failures", "Failures of capture", "table",
     [COUNT, terms(2, "cluster", 10), terms(3, "problems", 20)],
     {**TABLE, "showPartialRows": True}, FAILURES),
]
SEARCHES = [
    ("scriptorium-job-search", "HPC job scripts",
     ["cluster", "job.id", "user.name", "job.account", "job.name", "script.modules",
      "script.text"], ""),
    ("scriptorium-failures-search", "HPC job scripts: failures of capture",
     ["cluster", "job.id", "user.name", "capture", "complete", "problems", "lossy"], FAILURES),
]
# panel, x, y, width, height on a grid of 48 columns
PANELS = [
    ("visualization", "scriptorium-jobs-over-time", 0, 0, 48, 12),
    ("visualization", "scriptorium-top-users", 0, 12, 16, 14),
    ("visualization", "scriptorium-top-modules", 16, 12, 16, 14),
    ("visualization", "scriptorium-interpreters", 32, 12, 16, 14),
    ("visualization", "scriptorium-capture-failures", 0, 26, 48, 10),
    ("search", "scriptorium-job-search", 0, 36, 48, 24),
]


def saved_objects(new):
    """`new`: as Kibana 8.8 writes them; else as 7.10 did, of which OpenSearch Dashboards is a
    fork."""
    objects = []
    for id_, family, name in ((JOBS, "job", "HPC job scripts"), (USAGE, "usage", "HPC job usage")):
        attributes = {"title": f"{pattern_of(family, False)},{pattern_of(family, True)}",
                      "timeFieldName": "@timestamp", "fields": "[]"}
        if new:
            attributes |= {"name": name, "runtimeFieldMap": "{}", "fieldAttrs": "{}",
                           "typeMeta": "{}", "allowNoIndex": True}
        objects.append({"type": "index-pattern", "id": id_, "references": [],
                        "attributes": attributes})
    for id_, title, columns, query in SEARCHES:
        objects.append({"type": "search", "id": id_, "references": on_jobs(), "attributes": {
            "title": title, "description": "", "hits": 0, "version": 1, "columns": columns,
            "sort": [["@timestamp", "desc"]],
            "kibanaSavedObjectMeta": source(query, highlightAll=True, version=True)}})
    for id_, title, type_, aggregations, parameters, query in VISUALIZATIONS:
        objects.append({"type": "visualization", "id": id_, "references": on_jobs(), "attributes": {
            "title": title, "description": "", "uiStateJSON": "{}", "version": 1,
            "visState": packed({"title": title, "type": type_, "aggs": aggregations,
                                "params": parameters}),
            "kibanaSavedObjectMeta": source(query)}})
    panels, references = [], []
    for number, (type_, id_, x, y, w, h) in enumerate(PANELS, 1):
        panel = {"version": "8.8.0" if new else "7.10.2",
                 "gridData": {"x": x, "y": y, "w": w, "h": h, "i": str(number)},
                 "panelIndex": str(number), "embeddableConfig": {},
                 "panelRefName": f"panel_{number}"}
        panels.append({**panel, "type": type_} if new else panel)
        references.append({"name": f"{number}:panel_{number}" if new else f"panel_{number}",
                           "type": type_, "id": id_})
    objects.append({"type": "dashboard", "id": "scriptorium-jobs", "references": references,
                    "attributes": {
        "title": "HPC job scripts", "description": "", "hits": 0, "version": 1,
        "timeRestore": False,
        "optionsJSON": packed({"useMargins": True, "hidePanelTitles": False}),
        "panelsJSON": packed(panels),
        "kibanaSavedObjectMeta": {"searchSourceJSON": packed(
            {"query": {"query": "", "language": "kuery"}, "filter": []})}}})
    # A server takes objects of its own or an older version only, so these are the oldest that say
    # what is in them.
    old_types = {"index-pattern": "7.6.0", "search": "7.9.3", "visualization": "7.10.0",
                 "dashboard": "7.9.3"}
    new_types = {"index-pattern": "7.11.0", "search": "7.9.3", "visualization": "8.5.0",
                 "dashboard": "8.7.0"}
    for o in objects:
        if new:
            o |= {"coreMigrationVersion": "8.8.0", "typeMigrationVersion": new_types[o["type"]],
                  "managed": False}
        else:
            o |= {"migrationVersion": {o["type"]: old_types[o["type"]]}}
    return objects


# ---- all of it -----------------------------------------------------------------------------------
def made():
    """{path: text} of every file."""
    files = {}
    for flavor in ("elasticsearch", "opensearch"):
        for family in FAMILIES:
            for stream in (False, True):
                name = f"{flavor}-{family}" + ("-stream" if stream else "")
                policy = ilm(stream) if flavor == "elasticsearch" else ism(family, stream)
                for suffix, content in (("", template(flavor, family, stream)),
                                        ("-policy", policy)):
                    files[HERE / f"{name}{suffix}.json"] = json.dumps(content, indent=1,
                                                                      ensure_ascii=False) + "\n"
    for name, new in (("kibana", True), ("dashboards", False)):
        files[ASSETS / f"{name}.ndjson"] = "".join(packed(o) + "\n" for o in saved_objects(new))
    return files


def main():
    files = made()
    if sys.argv[1:] == ["--check"]:
        there = set(HERE.glob("*.json")) | set(ASSETS.glob("*.ndjson"))
        wrong = [f"{p.name}: run {pathlib.Path(__file__).name}" for p, text in files.items()
                 if not p.exists() or p.read_text(encoding="utf-8") != text]
        wrong += [f"{p.name}: nothing makes this file" for p in sorted(there - set(files))]
        print("\n".join(wrong) or f"{len(files)} files are as they should be")
        return 1 if wrong else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 64
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
