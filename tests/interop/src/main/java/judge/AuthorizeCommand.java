package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import kafkalog.Json;
import kafkalog.Release;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's authorizer, in a batch: a file of cases in, one a line, a file of answers out. A case has ACLs and settings,
 * requests to decide about (one resource, or whether there may be one of a type), and filters over the ACLs.
 */
final class AuthorizeCommand {
    private AuthorizeCommand() { }

    static Map<String, Object> run(Request request) throws Exception {
        int lines = 0;
        try (BufferedReader in = Files.newBufferedReader(Path.of(request.text("input")));
            BufferedWriter out = Files.newBufferedWriter(Path.of(request.text("output")))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.write(Json.encode(answer(Json.parse(line))));
                out.newLine();
                lines++;
            }
        }
        return Json.object("lines", lines);
    }

    private static Map<String, Object> answer(JsonNode given) throws Exception {
        try (StandardAuthorizer authorizer = Release.authorizer()) {
            Map<String, Object> settings = new HashMap<>();
            settings.put(StandardAuthorizer.SUPER_USERS_CONFIG, given.get("super_users").asText());
            settings.put(StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG,
                given.get("allow_everyone").asText());
            authorizer.configure(settings);
            Map<Uuid, StandardAcl> acls = new HashMap<>();
            for (JsonNode each : given.get("acls")) {
                acls.put(Uuid.randomUuid(), StandardAcl.fromAclBinding(binding(each)));
            }
            authorizer.loadSnapshot(acls);
            authorizer.completeInitialLoad();
            List<Boolean> decisions = new ArrayList<>();
            for (JsonNode each : given.get("requests")) {
                ResourcePattern resource = new ResourcePattern(
                    ResourceType.valueOf(text(each, "resource_type")), text(each, "resource_name"), PatternType.LITERAL);
                Action action = new Action(AclOperation.valueOf(text(each, "operation")), resource, 1, false, false);
                decisions.add(isAllowed(authorizer.authorize(new Asking(each), List.of(action)).get(0)));
            }
            List<Boolean> byType = new ArrayList<>();
            for (JsonNode each : given.get("by_type")) {
                byType.add(isAllowed(authorizer.authorizeByResourceType(new Asking(each),
                    AclOperation.valueOf(text(each, "operation")), ResourceType.valueOf(text(each, "resource_type")))));
            }
            List<Object> found = new ArrayList<>();
            for (JsonNode each : given.get("filters")) {
                TreeSet<String> told = new TreeSet<>();
                authorizer.acls(filter(each)).forEach(acl -> told.add(tell(acl)));
                found.add(told);
            }
            return Json.object("requests", decisions, "by_type", byType, "filters", found);
        }
    }

    private static boolean isAllowed(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED;
    }

    private static AclBinding binding(JsonNode acl) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(text(acl, "resource_type")), text(acl, "resource_name"),
                PatternType.valueOf(text(acl, "pattern_type"))),
            new AccessControlEntry(text(acl, "principal"), text(acl, "host"),
                AclOperation.valueOf(text(acl, "operation")), AclPermissionType.valueOf(text(acl, "permission"))));
    }

    private static AclBindingFilter filter(JsonNode filter) {
        return new AclBindingFilter(
            new ResourcePatternFilter(ResourceType.valueOf(text(filter, "resource_type")),
                text(filter, "resource_name"), PatternType.valueOf(text(filter, "pattern_type"))),
            new AccessControlEntryFilter(text(filter, "principal"), text(filter, "host"),
                AclOperation.valueOf(text(filter, "operation")), AclPermissionType.valueOf(text(filter, "permission"))));
    }

    private static String tell(AclBinding acl) {
        return String.join("|", acl.entry().principal(), acl.entry().operation().name(),
            acl.pattern().resourceType().name(), acl.pattern().name(), acl.pattern().patternType().name(),
            acl.entry().permissionType().name(), acl.entry().host());
    }

    private static String text(JsonNode node, String name) {
        return node.hasNonNull(name) ? node.get(name).asText() : null;
    }

    /** Who asks, and from where. */
    private record Asking(JsonNode json) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public KafkaPrincipal principal() {
            String[] typeAndName = text(json, "principal").split(":", 2);
            return new KafkaPrincipal(typeAndName[0], typeAndName[1]);
        }

        @Override
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(text(json, "host"));
            } catch (java.net.UnknownHostException e) {
                throw new IllegalArgumentException(e);
            }
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "judge";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
