"""Signing in by Kerberos and by token, at a real broker with its own KDC."""

import os
import shutil
import socket
import subprocess
import uuid

import pytest

import harness
import kafka_lab
from kafka_lab import kafka_sink, make_kafka_daemon  # noqa: F401  (a fixture)

REALM = "LAB.EXAMPLE"


class Kdc:
    """A Kerberos realm in a folder, on its own port."""

    def __init__(self, directory):
        self.directory = directory
        self.port = kafka_lab.free_ports(1)
        directory.mkdir()
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n rdns = false\n dns_canonicalize_hostname = "
            f"false\n dns_lookup_kdc = false\n"
            f" udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = "
            f"127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n 127.0.0.1 = {REALM}\n")
        (directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = "
            f"127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = "
            f"{directory}/stash\n"
            f"  acl_file = {directory}/acl\n }}\n")
        self.environment = {"KRB5_CONFIG": str(self.config),
                            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
                            "KRB5CCNAME": f"FILE:{directory}/tickets"}
        self.process = None

    def run(self, *command):
        result = subprocess.run(command, capture_output=True, text=True, timeout=120,
                                env={**os.environ, **self.environment})
        assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"

    def start(self):
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", uuid.uuid4().hex)
        for principal in ("kafka/127.0.0.1", "scriptorium"):
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self.run("kadmin.local", "-r", REALM, "-q",
                     f"ktadd -k {self.directory}/{principal.split('/')[0]}.keytab {principal}")
        with open(self.directory / "kdc.log", "wb") as log:
            self.process = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], stdout=log, stderr=log,
                                            env={**os.environ, **self.environment})

        def answers():
            assert self.process.poll() is None, (self.directory / "kdc.log").read_text()
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        harness.wait_for(answers, "the KDC answers")
        return self

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def lab(request):
    """(broker, KDC): the broker takes tickets and tokens on its port + 2."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for command, package in (("krb5kdc", "krb5-kdc"), ("kadmin.local", "krb5-admin-server"),
                             ("kinit", "krb5-user")):
        if not shutil.which(command):
            pytest.skip(f"no {command}; apt-get install {package}")
    directory = kafka_lab.brokers_directory(request)
    kdc = Kdc(directory / "kdc")
    broker = kafka_lab.Broker(directory / "broker", "4.1", properties=directory / "more.properties",
                              java_options=f"-Djava.security.krb5.conf={kdc.config}")
    outside = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{broker.port + 2}"
    broker.properties.write_text(
        f"listeners={outside},CONTROLLER://127.0.0.1:{broker.port + 1}\n"
        f"advertised.listeners={outside}\n"
        "listener.security.protocol.map="
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT\n"
        "listener.name.sasl.sasl.enabled.mechanisms=GSSAPI,OAUTHBEARER\n"
        "sasl.kerberos.service.name=kafka\n"
        "listener.name.sasl.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule "
        "required useKeyTab=true "
        f'storeKey=true keyTab="{kdc.directory}/kafka.keytab" '
        f'principal="kafka/127.0.0.1@{REALM}";\n'
        "listener.name.sasl.oauthbearer.sasl.jaas.config="
        'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required '
        'unsecuredLoginStringClaim_sub="broker";\n')
    try:
        kdc.start()
        for running in kafka_lab.running(directory, broker):
            yield running, kdc
    finally:
        kdc.stop()
        shutil.rmtree(directory, ignore_errors=True)


def delivered(make_kafka_daemon, broker, make_storm, environment=None, **options):
    topic = broker.create(f"tickets-{uuid.uuid4().hex[:8]}")
    storm = make_storm(50).finish()
    sink = kafka_sink(broker, topic, brokers=f"127.0.0.1:{broker.port + 2}",
                      security_protocol="sasl_plaintext", **options)
    daemon = make_kafka_daemon({"kafka": sink}, archive=False, environment=environment)
    daemon.start()
    daemon.wait_acknowledged(50, "kafka")
    kafka_lab.compare(broker.read(topic), storm.manifest())
    return daemon


def test_a_keytab_signs_in_by_kerberos(make_kafka_daemon, lab, make_storm):
    broker, kdc = lab
    delivered(make_kafka_daemon, broker, make_storm, kdc.environment, sasl_mechanism="GSSAPI",
              kerberos_principal=f"scriptorium@{REALM}",
              kerberos_keytab_file=str(kdc.directory / "scriptorium.keytab"))


def test_a_token_of_a_file_signs_in_and_is_in_no_log(make_kafka_daemon, lab, make_storm, work):
    broker, _ = lab
    token = kafka_lab.unsecured_token("scriptorium")
    daemon = delivered(make_kafka_daemon, broker, make_storm, sasl_mechanism="OAUTHBEARER",
                       sasl_token_file=kafka_lab.secret_file(work, "token", token))
    assert token not in daemon.log_text()
